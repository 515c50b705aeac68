"""Amazon's keys, found where its own tools find them.

    variables          AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
    profile files      ~/.aws/credentials and ~/.aws/config: keys, a role to assume, single sign-on, a program to ask
    a web identity     AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, as pods of Kubernetes have them
    a container        the address in AWS_CONTAINER_CREDENTIALS_…, of ECS and EKS
    the instance       EC2's metadata service, version 2

The first that has any is asked. All of it blocks; whoever calls this on an event loop does so in a thread.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

import msgspec

from dragoman.engines.credential import AwsKeys
from dragoman.engines.keys import LOCAL_MODEL
from dragoman.errors import AuthenticationError, ConfigurationError, MissingKeyError, ProviderError
from dragoman.transport import HttpRequest, Timeouts, host_of, is_loopback

from .fetching import Fetched, fetch, send
from .sigv4 import signature

_ECS: Final = "http://169.254.170.2"
_EKS: Final = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23"})
"""Addresses at which a container may be told its keys without TLS, beside its own."""
_EC2: Final = "http://169.254.169.254"
_ROLE_PATH: Final = "/latest/meta-data/iam/security-credentials/"
_METADATA_SECONDS: Final = 2.0
_ANSWERED_BADLY: Final = frozenset({"read_timeout", "cut_off"})
"""What befalls a request once there is a connection: somebody is there, and may answer the next time."""
_SESSION: Final = "dragoman"
_LOG_IN: Final = "Sign in: aws sso login --profile {}."


def aws_keys(*, profile: str | None = None, environ: Mapping[str, str] | None = None) -> Callable[[], AwsKeys]:
    """A function that finds Amazon's keys, for `key=`. `profile` is a name in the files of its tools."""
    environment = os.environ if environ is None else environ
    return lambda: _Chain(environment, profile or "").find()


def region_of(environ: Mapping[str, str]) -> str:
    """The region that the variables or the profile name; empty if none does."""
    said = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return said or _Chain(environ, "").profile.get("region", "")


class _Chain:
    """The places where keys may be, one after the other."""

    def __init__(self, environ: Mapping[str, str], profile: str) -> None:
        self._environ: Mapping[str, str] = environ
        self._is_named: bool = bool(profile or environ.get("AWS_PROFILE"))
        self._name: str = profile or environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE") or "default"
        self._given: bool = bool(profile)
        self._sections: dict[str, dict[str, str]] | None = None

    @property
    def profile(self) -> dict[str, str]:
        return self._profile(self._name)

    def find(self) -> AwsKeys:
        looks = [self._from_profile, self._from_web_identity, self._from_container, self._from_instance]
        for look in looks if self._given else [self._from_variables, *looks]:
            if (found := look()) is not None:
                return found
        hint = (
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK; or sign in with "
            f"Amazon's command line (aws configure, aws sso login). {LOCAL_MODEL}"
        )
        looked = ("the variables", f"the profile {self._name!r}", "a web identity", "a container", "the instance")
        message = "There are no keys for Amazon. Looked at " + ", ".join(looked) + "."
        raise MissingKeyError(message, hint=hint, provider="bedrock", places=looked)

    def _from_variables(self) -> AwsKeys | None:
        environ = self._environ
        key, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
        return AwsKeys(key, secret, environ.get("AWS_SESSION_TOKEN") or None) if key and secret else None

    # --- the files of Amazon's tools ---

    def _from_profile(self) -> AwsKeys | None:
        if self._is_named and not self.profile:
            message = f"There is no profile {self._name!r} in the files of Amazon's tools."
            raise ConfigurationError(message, hint="Correct AWS_PROFILE, or make it: aws configure --profile NAME.")
        return self._of_profile(self._name, ())

    def _of_profile(self, name: str, above: tuple[str, ...]) -> AwsKeys | None:
        said, is_source_of_itself = self._profile(name), name in above
        if is_source_of_itself and not _has_keys(said):
            raise ConfigurationError(f"The profile {name!r} takes its keys from itself.", hint="See source_profile.")
        if "role_arn" in said and not is_source_of_itself:
            return self._assume(name, said, above)
        if "sso_session" in said or "sso_start_url" in said:
            return self._sign_on(name, said)
        if _has_keys(said):
            return AwsKeys(said["aws_access_key_id"], said["aws_secret_access_key"], said.get("aws_session_token"))
        return _ask_program(name, said["credential_process"]) if "credential_process" in said else None

    def _assume(self, name: str, said: dict[str, str], above: tuple[str, ...]) -> AwsKeys:
        role, session = said["role_arn"], said.get("role_session_name", _SESSION)
        if "web_identity_token_file" in said:
            return self._lend_to_identity(role, session, said["web_identity_token_file"])
        if "source_profile" in said:
            source = self._of_profile(said["source_profile"], (*above, name))
        else:
            sources = {
                "Environment": self._from_variables,
                "EcsContainer": self._from_container,
                "Ec2InstanceMetadata": self._from_instance,
            }
            look = sources.get(said.get("credential_source", ""))
            source = None if look is None else look()
        if source is None:
            message = f"The profile {name!r} assumes a role, and nothing says with which keys."
            raise ConfigurationError(message, hint="Give it a source_profile or a credential_source that has keys.")
        asked = {"Action": "AssumeRole", "RoleArn": role, "RoleSessionName": session}
        if "external_id" in said:
            asked["ExternalId"] = said["external_id"]
        return self._lend(asked, source, said.get("region", ""))

    def _sign_on(self, name: str, said: dict[str, str]) -> AwsKeys:
        """Keys of a role, for whoever has signed in with Amazon's command line."""
        session = said.get("sso_session", "")
        about = self._read_files().get(f"sso-session {session}", {}) | said
        start, region = about.get("sso_start_url", ""), about.get("sso_region", "")
        account, role = about.get("sso_account_id", ""), about.get("sso_role_name", "")
        if not all((start, region, account, role)):
            message = f"The profile {name!r} does not say all that single sign-on needs."
            raise ConfigurationError(message, hint="Complete it: aws configure sso.")
        import hashlib

        mark = hashlib.sha1((session or start).encode(), usedforsecurity=False).hexdigest()
        kept = _read_json(self._home() / ".aws" / "sso" / "cache" / f"{mark}.json")
        token, ends = kept.get("accessToken"), _moment(kept.get("expiresAt"))
        if not isinstance(token, str) or (ends is not None and ends <= time.time()):
            what = "has expired" if token else "is missing"
            raise AuthenticationError(f"The sign-on of the profile {name!r} {what}.", hint=_LOG_IN.format(name))
        base = self._environ.get("AWS_ENDPOINT_URL_SSO") or f"https://portal.sso.{region}.{_domain(region)}"
        query = urlencode({"role_name": role, "account_id": account})
        got = fetch(f"{base}/federation/credentials?{query}", headers={"x-amz-sso_bearer_token": token})
        if got.status in (401, 403):
            message = f"Amazon does not lend the keys of the role {role!r} in the account {account} ({got.status})."
            raise AuthenticationError(message, hint=f"{_LOG_IN.format(name)} Or check the role of the profile.")
        return _keys_in(_object(got, "single sign-on").get("roleCredentials"), "single sign-on")

    # --- what a machine is told ---

    def _from_web_identity(self) -> AwsKeys | None:
        file, role = self._environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"), self._environ.get("AWS_ROLE_ARN")
        if not file or not role:
            return None
        return self._lend_to_identity(role, self._environ.get("AWS_ROLE_SESSION_NAME") or _SESSION, file)

    def _from_container(self) -> AwsKeys | None:
        environ = self._environ
        path = environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        url = f"{_ECS}{path}" if path else environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        if not url:
            return None
        host = host_of(url)
        if not url.startswith("https:") and not is_loopback(host) and host not in _EKS:
            message = "AWS_CONTAINER_CREDENTIALS_FULL_URI names another machine without TLS."
            raise ConfigurationError(message, hint="Use an https:// address, or one of this machine.")
        token = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        if file := environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            token = _read_text(Path(file))
        headers = {"accept": "application/json"} | ({"authorization": token} if token else {})
        return _keys_in(
            _object(fetch(url, headers=headers, seconds=_METADATA_SECONDS), "the container"), "the container"
        )

    def _from_instance(self) -> AwsKeys | None:
        environ = self._environ
        if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            return None
        base = (environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _EC2).rstrip("/")

        def ask(path: str, header: str, value: str, method: str = "GET") -> Fetched:
            headers = {f"x-aws-ec2-metadata-{header}": value}
            got = fetch(f"{base}{path}", method=method, headers=headers, seconds=_METADATA_SECONDS)
            return _up(got, "the instance")

        try:
            session = ask("/latest/api/token", "token-ttl-seconds", "21600", "PUT")
        except ProviderError as error:
            if error.code in _ANSWERED_BADLY or error.status is not None:
                raise
            return None  # this machine is no instance of EC2
        token = session.body.decode("latin-1")
        roles = ask(_ROLE_PATH, "token", token) if session.status == 200 else session
        role = roles.body.decode("latin-1").partition("\n")[0].strip()
        if roles.status != 200 or not role:  # an instance without a role
            return None
        return _keys_in(_object(ask(f"{_ROLE_PATH}{quote(role)}", "token", token), "the instance"), "the instance")

    # --- keys that are lent for a role ---

    def _lend_to_identity(self, role: str, session: str, file: str) -> AwsKeys:
        asked = {"Action": "AssumeRoleWithWebIdentity", "RoleArn": role, "RoleSessionName": session}
        return self._lend({**asked, "WebIdentityToken": _read_text(Path(file))}, None, "")

    def _lend(self, asked: Mapping[str, str], source: AwsKeys | None, region: str) -> AwsKeys:
        region = region or region_of(self._environ) or "us-east-1"
        url = self._environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.{_domain(region)}"
        request = HttpRequest(
            url=f"{url.rstrip('/')}/",
            headers={"content-type": "application/x-www-form-urlencoded"},
            body=urlencode({**asked, "Version": "2011-06-15"}).encode(),
            timeout=Timeouts(connect=10.0, read=10.0, total=20.0),
        )
        if source is not None:
            added = signature(request, source, region=region, service="sts", now=time.time())
            request = msgspec.structs.replace(request, headers={**request.headers, **added})
        got = _up(send(request), "the security token service")
        members = dict(_XML(got.body.decode(errors="replace")))
        if got.status != 200:
            why = members.get("Message") or f"status {got.status}"
            message = f"Amazon does not lend keys for the role {asked['RoleArn']}: {why.rstrip('.')}."
            raise AuthenticationError(message, hint="Check the role's ARN and its trust policy.")
        return _keys_in(members, "the security token service")

    # --- files ---

    def _home(self) -> Path:
        home = self._environ.get("HOME") or self._environ.get("USERPROFILE")
        return Path(home) if home else Path.home()

    def _profile(self, name: str) -> dict[str, str]:
        sections = self._read_files()
        return sections.get(f"profile {name}", {}) | sections.get(f"keys {name}", {})

    def _read_files(self) -> dict[str, dict[str, str]]:
        """`profile NAME` and `sso-session NAME` of the one file, `keys NAME` of the other, which wins."""
        if self._sections is None:
            config = self._environ.get("AWS_CONFIG_FILE") or self._home() / ".aws" / "config"
            keys = self._environ.get("AWS_SHARED_CREDENTIALS_FILE") or self._home() / ".aws" / "credentials"
            self._sections = dict(_read_sections(Path(config).expanduser()))
            self._sections |= {f"keys {name}": said for name, said in _read_sections(Path(keys).expanduser())}
            if "default" in self._sections:
                self._sections.setdefault("profile default", self._sections.pop("default"))
        return self._sections


def _has_keys(said: Mapping[str, str]) -> bool:
    return bool(said.get("aws_access_key_id") and said.get("aws_secret_access_key"))


def _read_sections(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    import configparser  # few programs need it

    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (configparser.Error, UnicodeError) as error:
        said = str(error).partition("\n")[0]
        raise ConfigurationError(f"{path} cannot be read: {said}.", hint="Correct the file.") from None
    for name in parser.sections():
        yield " ".join(name.split()), dict(parser.items(name))


def _ask_program(name: str, command: str) -> AwsKeys:
    import shlex
    import subprocess

    try:
        done = subprocess.run(shlex.split(command), capture_output=True, timeout=60, check=False)  # noqa: S603
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _no_keys(f"the program of the profile {name!r}", type(error).__name__) from None
    if done.returncode:
        raise _no_keys(f"the program of the profile {name!r}", f"it ended with {done.returncode}")
    return _keys_in(_object(Fetched(200, {}, done.stdout), "the program"), f"the program of the profile {name!r}")


# --- reading what is told ---------------------------------------------------------------------------------------------

_XML: Final = re.compile(r"<(\w+)>([^<]*)</\1>").findall
_NAMES: Final = {
    "access": ("AccessKeyId", "accessKeyId"),
    "secret": ("SecretAccessKey", "secretAccessKey"),
    "token": ("Token", "SessionToken", "sessionToken"),
    "ends": ("Expiration", "expiration"),
}


def _up(got: Fetched, place: str) -> Fetched:
    """The answer, unless the service is down for now: then ProviderError, after which a call is tried again."""
    if got.status >= 500:
        message = f"Amazon's keys could not be had from {place}: status {got.status}."
        raise ProviderError(message, hint="Try again; the service that gives them is down.", status=got.status)
    return got


def _object(got: Fetched, place: str) -> dict[str, Any]:
    if _up(got, place).status != 200:
        raise _no_keys(place, f"status {got.status}")
    try:
        return msgspec.json.decode(got.body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError):
        raise _no_keys(place, "its answer is no JSON object") from None


def _keys_in(told: object, place: str) -> AwsKeys:
    said = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    found = {part: next((said[name] for name in names if said.get(name)), None) for part, names in _NAMES.items()}
    if not isinstance(found["access"], str) or not isinstance(found["secret"], str):
        raise _no_keys(place, str(said.get("Message") or said.get("Code") or "its answer has none"))
    return AwsKeys(found["access"], found["secret"], found["token"], _moment(found["ends"]))


def _no_keys(place: str, why: str) -> AuthenticationError:
    message = f"Amazon's keys could not be had from {place}: {why.rstrip('.')}."
    return AuthenticationError(message, hint="Check the role that is attached there, or set AWS_ACCESS_KEY_ID.")


def _moment(said: object) -> float | None:
    """A moment as Amazon writes it: a text of ISO 8601, or milliseconds."""
    if isinstance(said, int | float):
        return said / 1000
    if not isinstance(said, str):
        return None
    try:
        read = datetime.fromisoformat(said.replace("UTC", "Z"))
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return {}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigurationError(f"{path} cannot be read: {reason}.", hint="A variable of Amazon's names it.") from None


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
