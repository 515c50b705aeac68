"""Addresses and identities of models in clouds, and the errors for what is missing or refused."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dragoman.conversation import Conversation, Message
from dragoman.engines import AwsKeys, Secret, async_engine, engine
from dragoman.engines.clouds.aws import aws_keys
from dragoman.engines.clouds.identities import entra_token, google_token
from dragoman.engines.clouds.places import locate
from dragoman.engines.factory import connection
from dragoman.engines.keys import hosts_of, may_go
from dragoman.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionFailedError,
    MissingKeyError,
    ModelNotFoundError,
    PermissionDeniedError,
    ProviderError,
)
from dragoman.providers import PROVIDERS, split_model
from dragoman.simulator import Simulator, Status
from dragoman.transport import HttpRequest, Response, RetryPolicy, SocketTransport
from tests.engines.clouds.small_server import Asked, serving

ASKED = Conversation().plus(Message.user("Hi"))
SONNET = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.fixture(autouse=True)
def nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable and no file of any cloud."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_", "CLOUD_ML", "ANTHROPIC_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def url_of(name: str, environ: dict[str, str] | None = None, **said: str) -> str:
    provider, model = split_model(name)
    return locate(PROVIDERS[provider], model, environ=environ or {}, **said).base_url


RES = "https://res.openai.azure.com"
AI = "https://r.services.ai.azure.com"
GOOGLE = "aiplatform.googleapis.com/v1beta1/projects"
ARN = "arn:aws:bedrock:eu-west-1:1:application-inference-profile/x"
EAST = {"AWS_REGION": "us-east-1"}
LOCATED = {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "asia-east1"}
CLAUDE = {"ANTHROPIC_VERTEX_PROJECT_ID": "p", "CLOUD_ML_REGION": "us"}


def at(url: str) -> dict[str, str]:
    return {"base_url": url}


ADDRESSES: list[tuple[str, dict[str, str], dict[str, str], str]] = [
    ("azure:gpt", {}, at(RES), f"{RES}/openai/v1"),
    ("azure:gpt", {"AZURE_OPENAI_ENDPOINT": f"{RES}/"}, {}, f"{RES}/openai/v1"),
    ("azure-responses:gpt", {}, at(f"{RES}/openai"), f"{RES}/openai/v1"),
    ("azure:gpt", {}, at(f"{RES}/openai/v1/"), f"{RES}/openai/v1/"),
    ("azure:gpt", {}, at(f"{RES}?api-version=1"), f"{RES}/openai/deployments/gpt?api-version=1"),
    ("azure-responses:gpt", {}, at(f"{RES}?api-version=1"), f"{RES}/openai?api-version=1"),
    (
        "azure:gpt",
        {"OPENAI_API_VERSION": "2"},
        at(f"{RES}/deployments/other"),
        f"{RES}/deployments/other?api-version=2",
    ),
    ("azure:gpt", {}, at(f"{AI}/api/projects/p"), f"{AI}/api/projects/p/openai/v1"),
    ("azure:m", {}, at(f"{AI}/models?api-version=3"), f"{AI}/models?api-version=3"),
    ("vertex:gemini-2.5-flash", {"GOOGLE_CLOUD_PROJECT": "p"}, {}, f"https://{GOOGLE}/p/locations/global"),
    ("vertex:gemini-2.5-flash", LOCATED, {}, f"https://asia-east1-{GOOGLE}/p/locations/asia-east1"),
    ("vertex:g", LOCATED, {"region": "eu-west4", "project": "q"}, f"https://eu-west4-{GOOGLE}/q/locations/eu-west4"),
    ("vertex:claude-x@20250929", CLAUDE, {}, "https://aiplatform.us.rep.googleapis.com/v1/projects/p/locations/us"),
    ("vertex:projects/p/locations/eu/endpoints/1", {}, {}, "https://aiplatform.eu.rep.googleapis.com"),
    (f"bedrock:{SONNET}", {}, {"region": "us-east-1"}, "https://bedrock-runtime.us-east-1.amazonaws.com"),
    (f"bedrock:{SONNET}", {"AWS_REGION": "cn-north-1"}, {}, "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"),
    (f"bedrock:{ARN}", EAST, {}, "https://bedrock-runtime.eu-west-1.amazonaws.com"),
    (f"bedrock:{SONNET}", {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "https://vpce.here"}, {}, "https://vpce.here"),
    ("bedrock-mantle:openai.gpt-5.5", EAST, {}, "https://bedrock-mantle.us-east-1.api.aws/openai/v1"),
    ("bedrock-mantle-chat:openai.gpt-oss-120b", EAST, {}, "https://bedrock-mantle.us-east-1.api.aws/v1"),
]


@pytest.mark.parametrize(("name", "environ", "given", "url"), ADDRESSES)
def test_addresses(name: str, environ: dict[str, str], given: dict[str, str], url: str) -> None:
    assert url_of(name, environ, **given) == url


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("azure:gpt", {}, "which resource has the deployment 'gpt'.*AZURE_OPENAI_ENDPOINT"),
        ("azure:gpt", {"base_url": f"{RES}/openai/deployments/d"}, "need a version.*api-version="),
        ("vertex:gemini-2.5-flash", {}, "needs your Google Cloud project.*project='…'.*GOOGLE_CLOUD_PROJECT"),
        ("vertex:gemini-2.5-flash", {"region": "Europe West"}, "'Europe West' is not a valid region"),
        ("vertex:gemini-2.5-flash", {"project": "a/../b"}, "is not a valid project"),
        (f"bedrock:{SONNET}", {}, "needs the AWS region.*region='us-east-1'.*AWS_REGION"),
        ("anthropic:claude-sonnet-4-5", {"region": "us-east-1", "key": "k"}, "anthropic has no region"),
        *[
            (
                model,
                {word: "us-east-1", "key": "k", "base_url": RES},
                rf"has no {word}.*Remove {word}.*DRAGOMAN_{upper}",
            )
            for word, upper, models in (
                ("region", "REGION", ["azure:gpt", "azure-responses:gpt", "openai:gpt-5"]),
                ("project", "PROJECT", [f"bedrock:{SONNET}", "bedrock-mantle:m", "azure:gpt", "gemini:gemini-2.5-pro"]),
            )
            for model in models
        ],
        ("vertex:gemini-2.5-flash", {"base_url": RES, "region": "eu", "key": "k"}, "from base_url, so region"),
        ("vertex:projects/p/locations/eu/endpoints/1", {"project": "q"}, "from the model's name, so project"),
    ],
)
def test_missing_and_invalid_settings_are_refused(name: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        connection(name, **given)  # type: ignore[arg-type]


# --- identities of this machine ---------------------------------------------------------------------------------------


def test_an_identity_is_sent_only_to_hosts_of_its_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    there = connection(f"bedrock:{SONNET}", region="us-east-1")
    assert may_go(there.key, there.base_url)  # type: ignore[arg-type]
    for name, said in ((f"bedrock:{SONNET}", {"region": "us-east-1"}), ("azure:gpt", {}), ("vertex:g", {})):
        with pytest.raises(MissingKeyError, match="The identity of this machine belongs to "):
            connection(name, base_url="https://elsewhere.test", **said)  # type: ignore[arg-type]
        with pytest.raises(MissingKeyError, match="belongs to"):
            connection(name, base_url="https://amazonaws.com.evil.test", **said)  # type: ignore[arg-type]
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://gateway.test")
    assert connection("azure:gpt").base_url == "https://gateway.test/openai/v1"
    given = connection("azure:gpt", base_url="https://elsewhere.test", key="typed")
    assert given.key == Secret("typed")


HOSTS = {
    "azure:gpt": (
        ["res.openai.azure.com", "res.cognitiveservices.azure.us", "r.services.ai.azure.com", "gateway.test"],
        ["evil.test", "vm.westus.cloudapp.azure.com", "openai.azure.com.evil.test", "bedrock.test"],
    ),
    "vertex:gemini-2.5-flash": (
        ["aiplatform.googleapis.com", "europe-west4-aiplatform.googleapis.com", "aiplatform.us.rep.googleapis.com"],
        ["evil.test", "storage.googleapis.com", "evil.test-aiplatform.googleapis.com"],
    ),
    f"bedrock:{SONNET}": (
        [
            "bedrock-runtime.us-gov-west-1.amazonaws.com",
            "bedrock-runtime-fips.us-east-1.amazonaws.com",
            "bedrock-runtime.cn-north-1.amazonaws.com.cn",
            "bedrock-mantle.us-east-1.api.aws",
            "bedrock.test",
        ],
        [
            "bedrock-runtime.us-east-1.elb.amazonaws.com",
            "ec2-1-2-3-4.compute-1.amazonaws.com",
            "bedrock-runtime.s3.amazonaws.com",
            "bedrock-runtime.s3-us-west-2.amazonaws.com",
            "gateway.test",
        ],
    ),
}


@pytest.mark.parametrize("name", HOSTS)
def test_found_keys_are_sent_only_to_hosts_with_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://gateway.test/openai")
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "https://bedrock.test")
    provider = PROVIDERS[name.partition(":")[0]]
    key = Secret("k", hosts=hosts_of(provider))
    for_models, others = HOSTS[name]
    assert [host for host in (*for_models, *others) if may_go(key, f"https://{host}/v1")] == for_models
    for variable in provider.key_variables:
        monkeypatch.setenv(variable, "typed")
        assert connection(name, base_url=f"https://{for_models[0]}").key == Secret("typed")
        with pytest.raises(MissingKeyError, match=f"The one in {variable} belongs to"):
            connection(name, base_url="https://evil.test")


def test_a_model_name_cannot_choose_the_host() -> None:
    with pytest.raises(ConfigurationError, match="needs your Google Cloud project"):
        url_of("vertex:projects/p/locations/evil.test?/endpoints/1")


def test_each_cloud_has_its_own_key_header() -> None:
    said = {"azure:gpt": RES, "vertex:gemini-2.5-flash": "https://h/v1", f"bedrock:{SONNET}": "https://h"}
    headers = [connection(name, base_url=url, key="k").key_header() for name, url in said.items()]
    assert headers == [{"api-key": "k"}, {"x-goog-api-key": "k"}, {"authorization": "Bearer k"}]


@pytest.mark.parametrize("model", ["azure:gpt", "vertex:gemini-2.5-flash", "vertex:claude-x", f"bedrock:{SONNET}"])
def test_a_generated_token_is_a_bearer_token(model: str) -> None:
    with Simulator(api_key="token") as simulator:
        base_url = simulator.base_url(model.partition(":")[0])
        with engine(model, key=lambda: "token", base_url=base_url) as talker:
            talker.run_inference(ASKED)
        assert simulator.requests[0].headers["authorization"] == "Bearer token"


def test_requests_to_bedrock_are_signed() -> None:
    def keys() -> AwsKeys:
        return AwsKeys("AKID", "secret", "session")

    with Simulator() as simulator:
        options: dict[str, Any] = {"key": keys, "base_url": simulator.url, "region": "eu-west-1"}
        with engine(f"bedrock:{SONNET}", **options) as talker:
            talker.run_inference(ASKED)

        async def main() -> None:
            async with async_engine(f"bedrock:{SONNET}", **options) as talker:
                await talker.run_inference(ASKED)

        asyncio.run(main())
        for request in simulator.requests:
            assert "Credential=AKID/" in request.headers["authorization"]
            assert "/eu-west-1/bedrock/aws4_request" in request.headers["authorization"]
            assert request.headers["x-amz-security-token"] == "session"
        with (
            engine(f"bedrock:{SONNET}", key=keys, base_url=simulator.url) as talker,
            pytest.raises(ConfigurationError, match="needs the AWS region"),
        ):
            talker.run_inference(ASKED)
        with (
            engine("anthropic:claude-sonnet-4-5", key=keys, base_url=simulator.url) as talker,
            pytest.raises(ConfigurationError, match="not AWS keys"),
        ):
            talker.run_inference(ASKED)


def test_entra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Microsoft's own library, with the managed identity of a machine that is here."""
    pytest.importorskip("azure.identity")
    ends = int(time.time()) + 3600

    def answer(request: Asked) -> Any:
        if request.headers.get("x-identity-header") != "secret":
            return 400
        return {"access_token": "entra", "expires_on": ends, "resource": "r", "token_type": "Bearer"}

    with serving(answer) as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "secret")
        token = entra_token("https://cognitiveservices.azure.com/.default")()
        assert (token.value, token.expires_at) == (Secret("entra"), ends)
        assert "cognitiveservices.azure.com" in server.asked[-1].path


def test_google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's own library, with a service account whose token endpoint is here; its file also names the project."""
    pytest.importorskip("google.auth")
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    pem = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    status = 200

    def answer(_request: Asked) -> Any:
        return {"access_token": "google", "expires_in": 3600, "token_type": "Bearer"} if status == 200 else status

    with serving(answer) as server:
        account = {
            "type": "service_account",
            "project_id": "from-file",
            "private_key": pem.decode(),
            "client_email": "a@b",
        }
        file = tmp_path / "account.json"
        file.write_text(json.dumps({**account, "token_uri": f"{server.url}/token"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        token = google_token()()
        assert token.value == Secret("google")
        assert token.expires_at == pytest.approx(time.time() + 3600, abs=300)
        assert (
            url_of("vertex:gemini-2.5-flash", {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}).count("/from-file/") == 1
        )
        status = 401
        with pytest.raises(AuthenticationError, match="Google returned no token.*gcloud auth"):
            google_token()()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.engines.clouds.identities.find_spec", lambda _name: None)
    with pytest.raises(MissingKeyError, match=r"AZURE_OPENAI_API_KEY.*pip install 'dragoman\[azure\]'"):
        connection("azure:gpt", base_url=RES)
    with pytest.raises(MissingKeyError, match=r"gcloud auth.*pip install 'dragoman\[vertex\]'"):
        connection("vertex:gemini-2.5-flash", project="p")


# --- refusals ---------------------------------------------------------------------------------------------------------

EXPIRED = Status(403, "The security token included in the request is expired", "ExpiredTokenException")
WRONG_REGION = Status(400, "The provided model identifier is invalid.", "ValidationException")
FORBIDDEN = Status(403, "User is not authorized to perform: bedrock:InvokeModel", "AccessDeniedException")
NO_DEPLOYMENT = Status(404, "The API deployment for this resource does not exist.", "DeploymentNotFound")
NO_MODEL = Status(404, "Publisher Model `projects/p/…` was not found", "NOT_FOUND")
REFUSALS: list[tuple[str, Status, type[ProviderError], str]] = [
    (f"bedrock:{SONNET}", EXPIRED, AuthenticationError, "aws sso login"),
    (f"bedrock:{SONNET}", WRONG_REGION, ModelNotFoundError, "offered in this region"),
    (f"bedrock:{SONNET}", FORBIDDEN, PermissionDeniedError, "Allow bedrock:InvokeModel"),
    ("azure:gpt", NO_DEPLOYMENT, ModelNotFoundError, "name of a deployment: see that 'gpt' is deployed"),
    ("azure:gpt", Status(401), AuthenticationError, "AZURE_OPENAI_API_KEY"),
    ("azure:gpt", Status(403), PermissionDeniedError, "Cognitive Services OpenAI User"),
    ("vertex:gemini-2.5-flash", NO_MODEL, ModelNotFoundError, "offered in this region"),
    ("vertex:claude-sonnet-4-5", Status(401), AuthenticationError, "gcloud auth"),
    ("vertex:gemini-2.5-flash", Status(403), PermissionDeniedError, "Vertex AI User"),
]


@pytest.mark.parametrize(("model", "refusal", "kind", "hint"), REFUSALS)
def test_a_refusal_has_a_hint(model: str, refusal: Status, kind: type[ProviderError], hint: str) -> None:
    with Simulator([refusal]) as simulator:
        base_url = simulator.base_url(model.partition(":")[0])
        with engine(model, key="k", base_url=base_url) as talker, pytest.raises(kind) as caught:
            talker.run_inference(ASKED)
    assert hint in str(caught.value)


class NoSuchHost(SocketTransport):
    """A transport on which no name is known."""

    async def open(self, request: HttpRequest) -> Response:
        raise ConnectionFailedError(f"The host name {request.host} could not be found.", code="unknown_host")


def test_an_unknown_host_has_a_hint_about_the_region() -> None:
    model = f"bedrock:{SONNET}"
    with (
        engine(model, key="k", region="eu-moon-1", transport=NoSuchHost(), retry=RetryPolicy(max_attempts=1)) as talker,
        pytest.raises(ConnectionFailedError, match=r"bedrock-runtime\.eu-moon-1\..*Check the region"),
    ):
        talker.run_inference(ASKED)


def test_expired_keys_of_amazon_are_looked_up_again(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    file = tmp_path / ".aws" / "credentials"

    def keep(name: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = s\n")

    def answer(request: Any) -> Any:
        if "Credential=OLD/" in request.headers["authorization"]:
            keep("NEW")  # somebody signs in again
            return EXPIRED
        return "Hello."

    keep("OLD")
    with Simulator(answer) as simulator:
        options: dict[str, Any] = {"base_url": simulator.url, "region": "us-east-1"}
        with engine(f"bedrock:{SONNET}", key=aws_keys(environ={"HOME": str(tmp_path)}), **options) as talker:
            assert talker.run_inference(ASKED).text == "Hello."
        assert len(simulator.requests) == 2
