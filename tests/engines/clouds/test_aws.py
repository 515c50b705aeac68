"""Amazon's keys: the same as its own library finds, from every source."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import botocore.session
import pytest
from botocore.credentials import SSOProvider
from botocore.tokens import SSOTokenProvider

from dragoman.conversation import Conversation, Message
from dragoman.engines import AwsKeys, engine
from dragoman.engines.clouds.aws import aws_keys, region_of
from dragoman.errors import (
    AuthenticationError,
    ConfigurationError,
    MissingKeyError,
    ProviderError,
    RequestTimeoutError,
)
from dragoman.simulator import Simulator
from tests.engines.clouds.small_server import Asked, serving

SOON = "2031-01-01T00:00:00Z"
LENT = {"AccessKeyId": "LENT", "SecretAccessKey": "lent-secret", "Token": "lent-token", "Expiration": SOON}
NO_EC2 = {"AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with no variable of Amazon's around it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = tmp_path / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    for kind in (SSOProvider, SSOTokenProvider):  # which look for the home directory when they are imported
        monkeypatch.setattr(kind, "_SSO_TOKEN_CACHE_DIR", str(cache))
    return tmp_path


def write(home: Path, config: str = "", credentials: str = "") -> None:
    (home / ".aws" / "config").write_text(config)
    (home / ".aws" / "credentials").write_text(credentials)


def find(home: Path, environ: dict[str, str], profile: str | None = None) -> AwsKeys:
    return aws_keys(environ={"HOME": str(home), **environ}, profile=profile)()


def found_by_amazon(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> tuple[str, str, str | None]:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found: Any = botocore.session.Session().get_credentials()
    return tuple(found.get_frozen_credentials()[:3])


def plain(keys: AwsKeys) -> tuple[str, str, str | None]:
    return keys.access_key, keys.secret_key, keys.token


STATIC = "aws_access_key_id = {0}\naws_secret_access_key = {0}-secret\n"
PROGRAM = json.dumps({"Version": 1, "AccessKeyId": "P", "SecretAccessKey": "P-secret", "SessionToken": "t"})
CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "variables": (
        {"AWS_ACCESS_KEY_ID": "V", "AWS_SECRET_ACCESS_KEY": "V-secret", "AWS_SESSION_TOKEN": "t"},
        "",
        "[default]\n" + STATIC.format("D"),
    ),
    "default profile": ({}, "[default]\nregion = eu-west-1\n", "[default]\n" + STATIC.format("D")),
    "keys in the other file": ({}, "[default]\nregion=eu-west-1\n" + STATIC.format("C"), ""),
    "named profile": (
        {"AWS_PROFILE": "work"},
        "[profile work]\nregion = us-west-2\ns3 =\n  max_queue = 3\n",
        "[default]\n" + STATIC.format("D") + "[work]\n" + STATIC.format("W") + "aws_session_token = x\n",
    ),
    "a program": (
        {"AWS_PROFILE": "p"},
        f'[profile p]\ncredential_process = {sys.executable} -c \'print("""{PROGRAM}""")\'\n',
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_variables_and_profiles(case: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ, config, credentials = CASES[case]
    write(home, config, credentials)
    assert plain(find(home, {**environ, **NO_EC2})) == found_by_amazon(monkeypatch, {**environ, **NO_EC2})


def test_a_profile_argument_overrides_variables(home: Path) -> None:
    write(home, "", "[work]\n" + STATIC.format("W"))
    environ = {"AWS_ACCESS_KEY_ID": "V", "AWS_SECRET_ACCESS_KEY": "V-secret"}
    assert find(home, environ, profile="work").access_key == "W"


def _instance(request: Asked) -> Any:
    if request.method == "PUT":
        return "session" if "x-aws-ec2-metadata-token-ttl-seconds" in request.headers else 400
    if request.headers.get("x-aws-ec2-metadata-token") != "session":
        return 401
    place = "/latest/meta-data/iam/security-credentials/"
    return {place: "the-role", f"{place}the-role": {"Code": "Success", **LENT}}.get(request.path, 404)


def test_keys_of_the_instance(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(_instance) as server:
        environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url}
        keys = find(home, environ)
        assert [request.method for request in server.asked] == ["PUT", "GET", "GET"]
        assert plain(keys) == found_by_amazon(monkeypatch, environ) == ("LENT", "lent-secret", "lent-token")
    assert keys.expires_at == 1_924_992_000.0


@pytest.mark.parametrize("path", ["/latest/api/token", "security-credentials/", "security-credentials/the-role"])
def test_a_metadata_service_that_is_down_is_a_retryable_error(home: Path, path: str) -> None:
    with (
        serving(lambda request: 503 if request.path.endswith(path) else _instance(request)) as server,
        pytest.raises(ProviderError, match="from the instance: status 503") as caught,
    ):
        find(home, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url})
    assert (type(caught.value), caught.value.status) == (ProviderError, 503)


def test_a_metadata_service_that_times_out_is_a_retryable_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.engines.clouds.aws._METADATA_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        with pytest.raises(RequestTimeoutError):
            find(home, environ)
    with pytest.raises(MissingKeyError):  # nobody is there
        find(home, environ)


def test_a_chain_falls_back_if_there_are_no_keys(home: Path) -> None:
    keys, asked = aws_keys(environ={**NO_EC2, "HOME": str(home)}), Conversation().plus(Message.user("Hi"))
    with (
        Simulator(["Hello."]) as simulator,
        engine("bedrock:amazon.nova-lite-v1:0", key=keys, base_url=simulator.url, region="us-east-1") as amazon,
        engine("openai:gpt-4o", key="k", base_url=simulator.base_url("openai")) as other,
    ):
        assert engine([amazon, other]).run_inference(asked).text == "Hello."
        with pytest.raises(AuthenticationError, match="no keys for Amazon.*AWS_ACCESS_KEY_ID") as caught:
            amazon.run_inference(asked)
    assert caught.value.provider == "bedrock"


@pytest.mark.parametrize("form", ["token", "file"])
def test_keys_of_a_container(home: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    def answer(request: Asked) -> Any:
        return LENT if request.headers.get("authorization") == "Bearer pod" else 401

    (home / "pod").write_text("Bearer pod\n" if form == "file" else "")
    named = {"token": {"AWS_CONTAINER_AUTHORIZATION_TOKEN": "Bearer pod"}}
    with serving(answer) as server:
        environ = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{server.url}/v1/credentials"}
        environ |= named.get(form, {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(home / "pod")})
        assert plain(find(home, environ)) == ("LENT", "lent-secret", "lent-token")
        if form == "token":
            assert found_by_amazon(monkeypatch, environ)[0] == "LENT"
        environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "Bearer other"
        environ.pop("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", None)
        with pytest.raises(AuthenticationError, match="from the container: status 401"):
            find(home, environ)
    with pytest.raises(ConfigurationError, match="another machine without TLS"):
        find(home, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://10.0.0.1/keys"})


def _sign_on(home: Path, *, expires: str, session: bool) -> str:
    start = "https://acme.awsapps.com/start"
    mark = hashlib.sha1(("acme" if session else start).encode()).hexdigest()
    token = {"startUrl": start, "region": "eu-west-1", "accessToken": "signed-in", "expiresAt": expires}
    (home / ".aws" / "sso" / "cache" / f"{mark}.json").write_text(json.dumps(token))
    about = f"sso_start_url = {start}\nsso_region = eu-west-1\n"
    role = "sso_account_id = 123456789012\nsso_role_name = Reader\n"
    if session:
        return f"[profile me]\nsso_session = acme\n{role}[sso-session acme]\n{about}"
    return f"[profile me]\n{about}{role}"


@pytest.mark.parametrize("session", [True, False])
def test_single_sign_on(home: Path, monkeypatch: pytest.MonkeyPatch, session: bool) -> None:
    def answer(request: Asked) -> Any:
        if request.headers.get("x-amz-sso_bearer_token") != "signed-in":
            return 401
        ends = int((time.time() + 3600) * 1000)
        lent = {"accessKeyId": "S", "secretAccessKey": "S-secret", "sessionToken": "t", "expiration": ends}
        return {"roleCredentials": lent} if "role_name=Reader&account_id=123456789012" in request.path else 403

    with serving(answer) as server:
        write(home, _sign_on(home, expires=SOON, session=session))
        environ = {"AWS_PROFILE": "me", "AWS_ENDPOINT_URL_SSO": server.url}
        keys = find(home, environ)
        assert plain(keys) == ("S", "S-secret", "t") == found_by_amazon(monkeypatch, environ)
        assert keys.expires_at == pytest.approx(time.time() + 3600, abs=300)
        write(home, _sign_on(home, expires="2020-01-01T00:00:00UTC", session=session))
        with pytest.raises(AuthenticationError, match="has expired.*aws sso login --profile me"):
            find(home, environ)


XML = (
    "<R><Credentials><AccessKeyId>LENT</AccessKeyId><SecretAccessKey>lent-secret</SecretAccessKey>"
    f"<SessionToken>lent-token</SessionToken><Expiration>{SOON}</Expiration></Credentials></R>"
)


def test_roles_and_web_identities(home: Path) -> None:
    def answer(request: Asked) -> Any:
        asked = parse_qs(request.body)
        if asked["RoleArn"] == ["arn:none"]:
            return 403
        signed = "Credential=B/" in request.headers.get("authorization", "")
        known = asked.get("WebIdentityToken") == ["identity"] or signed
        return XML if known else 403

    (home / "identity").write_text("identity\n")
    roles = "[profile role]\nrole_arn = {}\nsource_profile = base\nexternal_id = x\n"
    with serving(answer) as server:
        environ = {"AWS_ENDPOINT_URL_STS": server.url, "AWS_REGION": "us-east-1"}
        pod = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(home / "identity"), "AWS_ROLE_ARN": "arn:role"}
        assert plain(find(home, {**environ, **pod})) == ("LENT", "lent-secret", "lent-token")
        write(home, roles.format("arn:role"), "[base]\n" + STATIC.format("B"))
        assert find(home, {**environ, "AWS_PROFILE": "role"}).access_key == "LENT"
        assert parse_qs(server.asked[-1].body)["ExternalId"] == ["x"]
        write(home, roles.format("arn:none"), "[base]\n" + STATIC.format("B"))
        with pytest.raises(AuthenticationError, match="arn:none: status 403.*trust policy"):
            find(home, {**environ, "AWS_PROFILE": "role"})


def test_missing_keys_and_broken_files_have_hints(home: Path) -> None:
    write(home)
    with pytest.raises(MissingKeyError, match="no keys for Amazon.*AWS_ACCESS_KEY_ID.*aws sso login") as caught:
        find(home, NO_EC2)
    assert caught.value.provider == "bedrock"
    with pytest.raises(ConfigurationError, match="no profile 'x'.*aws configure --profile"):
        find(home, {**NO_EC2, "AWS_PROFILE": "x"})
    write(home, "[profile a]\nrole_arn = r\nsource_profile = b\n[profile b]\nrole_arn = r\nsource_profile = a\n")
    with pytest.raises(ConfigurationError, match="is its own source_profile"):
        find(home, {**NO_EC2, "AWS_PROFILE": "a"})
    write(home, "no section\n")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        find(home, NO_EC2)


def test_where_the_region_comes_from(home: Path) -> None:
    write(home, "[default]\nregion = eu-west-1\n[profile w]\nregion = us-west-2\n")
    environ = {"HOME": str(home)}
    assert region_of(environ) == "eu-west-1"
    assert region_of({**environ, "AWS_PROFILE": "w"}) == "us-west-2"
    assert region_of({**environ, "AWS_DEFAULT_REGION": "a-b-1"}) == "a-b-1"
    assert region_of({**environ, "AWS_DEFAULT_REGION": "a-b-1", "AWS_REGION": "c-d-2"}) == "c-d-2"
