"""Amazon's keys, found where its own tools find them.

    variables          AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
    profile files      ~/.aws/credentials and ~/.aws/config: keys, a role to assume, single sign-on, a program to run
    a web identity     AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, as in pods of Kubernetes
    a container        the address in AWS_CONTAINER_CREDENTIALS_…, of ECS and EKS
    the instance       EC2's metadata service, version 2

The first source that has keys is used. All of this blocks.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

import msgspec

from dragoman._decoding import decode_as
from dragoman._programs import named_program, search_path
from dragoman.engines.credential import AwsKeys
from dragoman.engines.keys import LOCAL_MODEL
from dragoman.errors import AuthenticationError, ConfigurationError, MissingKeyError, ProviderError
from dragoman.transport import host_of, is_loopback

from .identities import Fetched, fetch
from .sigv4 import signature

_ECS: Final = "http://169.254.170.2"
_EKS: Final = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23"})
"""Addresses from which a container may get its keys without TLS, besides loopback."""
_EC2: Final = "http://169.254.169.254"
_ROLE_PATH: Final = "/latest/meta-data/iam/security-credentials/"
_METADATA_SECONDS: Final = 2.0
_AFTER_CONNECTING: Final = frozenset({"read_timeout", "cut_off"})
"""Codes of failures after there was a connection: the service exists, and may answer the next time."""
_SESSION: Final = "dragoman"
_LOG_IN: Final = "Sign in: aws sso login --profile {}."


def aws_keys(*, profile: str | None = None, environ: Mapping[str, str] | None = None) -> Callable[[], AwsKeys]:
    """A function that finds Amazon's keys, for `key=`. `profile` is a name in the files of Amazon's tools."""
    environment = os.environ if environ is None else environ
    return lambda: _Chain(environment, profile or "").find()


def region_of(environ: Mapping[str, str]) -> str:
    """The region in the variables or the profile; empty if there is none."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return region or _Chain(environ, "").profile.get("region", "")


class _Chain:
    """The sources of keys, one after the other."""

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
        sources = [self._from_profile, self._from_web_identity, self._from_container, self._from_instance]
        for source in sources if self._given else [self._from_variables, *sources]:
            if (keys := source()) is not None:
                return keys
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
            raise ConfigurationError(message, hint="Correct AWS_PROFILE, or create it: aws configure --profile NAME.")
        return self._of_profile(self._name, ())

    def _of_profile(self, name: str, parents: tuple[str, ...]) -> AwsKeys | None:
        profile, is_its_own_source = self._profile(name), name in parents
        has_keys = bool(profile.get("aws_access_key_id") and profile.get("aws_secret_access_key"))
        if is_its_own_source and not has_keys:
            message = f"The profile {name!r} is its own source_profile, and has no keys."
            raise ConfigurationError(message, hint="Correct source_profile.")
        if "role_arn" in profile and not is_its_own_source:
            return self._assume(name, profile, parents)
        if "sso_session" in profile or "sso_start_url" in profile:
            return self._sign_on(name, profile)
        if has_keys:
            token = profile.get("aws_session_token")
            return AwsKeys(profile["aws_access_key_id"], profile["aws_secret_access_key"], token)
        return _run_program(name, profile["credential_process"]) if "credential_process" in profile else None

    def _assume(self, name: str, profile: dict[str, str], parents: tuple[str, ...]) -> AwsKeys:
        role, session = profile["role_arn"], profile.get("role_session_name", _SESSION)
        if "web_identity_token_file" in profile:
            return self._assume_with_identity(role, session, profile["web_identity_token_file"])
        if "source_profile" in profile:
            keys = self._of_profile(profile["source_profile"], (*parents, name))
        else:
            sources = {
                "Environment": self._from_variables,
                "EcsContainer": self._from_container,
                "Ec2InstanceMetadata": self._from_instance,
            }
            source = sources.get(profile.get("credential_source", ""))
            keys = None if source is None else source()
        if keys is None:
            message = f"The profile {name!r} assumes a role, and names no keys to assume it with."
            raise ConfigurationError(message, hint="Add a source_profile or a credential_source that has keys.")
        fields = {"Action": "AssumeRole", "RoleArn": role, "RoleSessionName": session}
        if "external_id" in profile:
            fields["ExternalId"] = profile["external_id"]
        return self._call_sts(fields, keys, profile.get("region", ""))

    def _sign_on(self, name: str, profile: dict[str, str]) -> AwsKeys:
        """The keys of a role, after `aws sso login`."""
        session = profile.get("sso_session", "")
        settings = self._read_files().get(f"sso-session {session}", {}) | profile
        start, region = settings.get("sso_start_url", ""), settings.get("sso_region", "")
        account, role = settings.get("sso_account_id", ""), settings.get("sso_role_name", "")
        if not all((start, region, account, role)):
            message = f"The profile {name!r} lacks settings of single sign-on."
            raise ConfigurationError(message, hint="Complete it: aws configure sso.")
        import hashlib

        digest = hashlib.sha1((session or start).encode(), usedforsecurity=False).hexdigest()
        cached = _read_json(self._home() / ".aws" / "sso" / "cache" / f"{digest}.json")
        token, expires = cached.get("accessToken"), _to_timestamp(cached.get("expiresAt"))
        if not isinstance(token, str) or (expires is not None and expires <= time.time()):
            what = "has expired" if token else "is missing"
            raise AuthenticationError(f"The sign-on of the profile {name!r} {what}.", hint=_LOG_IN.format(name))
        base = self._environ.get("AWS_ENDPOINT_URL_SSO") or f"https://portal.sso.{region}.{_domain(region)}"
        query = urlencode({"role_name": role, "account_id": account})
        reply = fetch(f"{base}/federation/credentials?{query}", headers={"x-amz-sso_bearer_token": token})
        if reply.status in (401, 403):
            message = f"Amazon refuses the keys of the role {role!r} in the account {account} ({reply.status})."
            raise AuthenticationError(message, hint=f"{_LOG_IN.format(name)} Or check the role of the profile.")
        return _to_keys(_to_object(reply, "single sign-on").get("roleCredentials"), "single sign-on")

    # --- the identity of a machine ---

    def _from_web_identity(self) -> AwsKeys | None:
        file, role = self._environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"), self._environ.get("AWS_ROLE_ARN")
        if not file or not role:
            return None
        return self._assume_with_identity(role, self._environ.get("AWS_ROLE_SESSION_NAME") or _SESSION, file)

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
        reply = fetch(url, headers=headers, seconds=_METADATA_SECONDS)
        return _to_keys(_to_object(reply, "the container"), "the container")

    def _from_instance(self) -> AwsKeys | None:
        environ = self._environ
        if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            return None
        base = (environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _EC2).rstrip("/")

        def ask(path: str, header: str, value: str, method: str = "GET") -> Fetched:
            headers = {f"x-aws-ec2-metadata-{header}": value}
            reply = fetch(f"{base}{path}", method=method, headers=headers, seconds=_METADATA_SECONDS)
            return _check_up(reply, "the instance")

        try:
            session = ask("/latest/api/token", "token-ttl-seconds", "21600", "PUT")
        except ProviderError as error:
            if error.code in _AFTER_CONNECTING or error.status is not None:
                raise
            return None  # this machine is not an EC2 instance
        token = session.data.decode("latin-1")
        roles = ask(_ROLE_PATH, "token", token) if session.status == 200 else session
        role = roles.data.decode("latin-1").partition("\n")[0].strip()
        if roles.status != 200 or not role:  # an instance without a role
            return None
        return _to_keys(_to_object(ask(f"{_ROLE_PATH}{quote(role)}", "token", token), "the instance"), "the instance")

    # --- the security token service ---

    def _assume_with_identity(self, role: str, session: str, file: str) -> AwsKeys:
        fields = {"Action": "AssumeRoleWithWebIdentity", "RoleArn": role, "RoleSessionName": session}
        return self._call_sts({**fields, "WebIdentityToken": _read_text(Path(file))}, None, "")

    def _call_sts(self, fields: Mapping[str, str], keys: AwsKeys | None, region: str) -> AwsKeys:
        region = region or region_of(self._environ) or "us-east-1"
        url = self._environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.{_domain(region)}"
        headers = {"content-type": "application/x-www-form-urlencoded"}
        body = urlencode({**fields, "Version": "2011-06-15"}).encode()
        sign = keys and partial(signature, keys=keys, region=region, service="sts", now=time.time())
        reply = fetch(f"{url.rstrip('/')}/", method="POST", headers=headers, body=body, seconds=20.0, sign=sign)
        members = dict(_XML(_check_up(reply, "the security token service").data.decode(errors="replace")))
        if reply.status != 200:
            why = members.get("Message") or f"status {reply.status}"
            message = f"Amazon refuses keys for the role {fields['RoleArn']}: {why.rstrip('.')}."
            raise AuthenticationError(message, hint="Check the role's ARN and its trust policy.")
        return _to_keys(members, "the security token service")

    # --- files ---

    def _home(self) -> Path:
        home = self._environ.get("HOME") or self._environ.get("USERPROFILE")
        return Path(home) if home else Path.home()

    def _profile(self, name: str) -> dict[str, str]:
        sections = self._read_files()
        return sections.get(f"profile {name}", {}) | sections.get(f"keys {name}", {})

    def _read_files(self) -> dict[str, dict[str, str]]:
        """The sections `profile NAME` and `sso-session NAME` of one file, and `keys NAME` for those of the other."""
        if self._sections is None:
            config = self._environ.get("AWS_CONFIG_FILE") or self._home() / ".aws" / "config"
            keys = self._environ.get("AWS_SHARED_CREDENTIALS_FILE") or self._home() / ".aws" / "credentials"
            self._sections = dict(_read_sections(Path(config).expanduser()))
            self._sections |= {f"keys {name}": section for name, section in _read_sections(Path(keys).expanduser())}
            if "default" in self._sections:
                self._sections.setdefault("profile default", self._sections.pop("default"))
        return self._sections


def _read_sections(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    import configparser  # few programs need it

    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (configparser.Error, UnicodeError) as error:
        why = str(error).partition("\n")[0]
        raise ConfigurationError(f"{path} cannot be read: {why}.", hint="Correct the file.") from None
    for name in parser.sections():
        yield " ".join(name.split()), dict(parser.items(name))


def _run_program(name: str, command: str) -> AwsKeys:
    import shlex
    import subprocess

    place = f"the program of the profile {name!r}"
    try:
        program, *words = shlex.split(command)
        environ = {**os.environ, "PATH": search_path(os.environ)}
        argv = [named_program(program, environ), *words]
        done = subprocess.run(argv, env=environ, capture_output=True, timeout=60, check=False)  # noqa: S603
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _no_keys(place, type(error).__name__) from None
    if done.returncode:
        raise _no_keys(place, f"it exited with status {done.returncode}")
    return _to_keys(_to_object(Fetched(200, {}, done.stdout), place), place)


# --- parsing replies --------------------------------------------------------------------------------------------------

_XML: Final = re.compile(r"<(\w+)>([^<]*)</\1>").findall
_NAMES: Final = {
    "access": ("AccessKeyId", "accessKeyId"),
    "secret": ("SecretAccessKey", "secretAccessKey"),
    "token": ("Token", "SessionToken", "sessionToken"),
    "expires": ("Expiration", "expiration"),
}


def _check_up(reply: Fetched, place: str) -> Fetched:
    """The reply. Raises ProviderError, after which a call is retried, if the service is down."""
    if reply.status >= 500:
        message = f"Amazon's keys are not available from {place}: status {reply.status}."
        raise ProviderError(message, hint="Try again; the service is down.", status=reply.status)
    return reply


def _to_object(reply: Fetched, place: str) -> dict[str, Any]:
    if _check_up(reply, place).status != 200:
        raise _no_keys(place, f"status {reply.status}")
    try:
        return decode_as(reply.data, dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError):
        raise _no_keys(place, "the reply is not a JSON object") from None


def _to_keys(value: object, place: str) -> AwsKeys:
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    found = {part: next((fields[name] for name in names if fields.get(name)), None) for part, names in _NAMES.items()}
    if not isinstance(found["access"], str) or not isinstance(found["secret"], str):
        raise _no_keys(place, str(fields.get("Message") or fields.get("Code") or "the reply has none"))
    return AwsKeys(found["access"], found["secret"], found["token"], _to_timestamp(found["expires"]))


def _no_keys(place: str, why: str) -> AuthenticationError:
    message = f"Amazon's keys are not available from {place}: {why.rstrip('.')}."
    return AuthenticationError(message, hint="Check the role that is attached there, or set AWS_ACCESS_KEY_ID.")


def _to_timestamp(value: object) -> float | None:
    """The Unix time of a time as Amazon writes it: ISO 8601, or milliseconds."""
    if isinstance(value, int | float):
        return value / 1000
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.replace("UTC", "Z"))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return decode_as(path.read_bytes(), dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return {}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigurationError(f"{path} cannot be read: {reason}.", hint="Correct its AWS_ variable.") from None


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
