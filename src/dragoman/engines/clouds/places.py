"""The address of a model in a cloud, and the identity that is used without a key.

    azure    base_url or AZURE_OPENAI_ENDPOINT names the resource; the model is the name of a deployment
    google   region and project, or GOOGLE_CLOUD_LOCATION ("global" by default) and GOOGLE_CLOUD_PROJECT
    amazon   region, or AWS_REGION, or the region of the profile

An identity of this machine (Entra ID, Google, Amazon's keys) is sent only to hosts of its cloud, or to the host in the
cloud's own variable; a key that is passed is sent to any address.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from dragoman._decoding import decode_as
from dragoman.engines.credential import AwsKeys, Credential, KeySource
from dragoman.engines.keys import hosts_of
from dragoman.errors import ConfigurationError
from dragoman.providers import Provider
from dragoman.transport import HttpRequest, host_of

from .aws import aws_keys, region_of
from .identities import entra_token, google_token
from .sigv4 import signature

_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z]+)*-?[0-9]*").fullmatch
_PROJECT: Final = re.compile(r"[a-z0-9.:-]+").fullmatch


class Place(NamedTuple):
    """An address, and the identity to use there."""

    base_url: str
    identity: Callable[[], Credential]
    """The credential of this machine, if no key is passed. Raises MissingKeyError."""
    sign: Callable[[HttpRequest, AwsKeys], Mapping[str, str]] | None = None


class Wanted(NamedTuple):
    """The settings for a place."""

    base_url: str
    region: str
    project: str
    environ: Mapping[str, str]

    def variable(self, *names: str) -> str:
        return next((self.environ[name] for name in names if self.environ.get(name)), "")


def locate(
    provider: Provider,
    model: str,
    *,
    base_url: str = "",
    region: str = "",
    project: str = "",
    environ: Mapping[str, str] | None = None,
) -> Place:
    """The place of a model in a cloud. Raises ConfigurationError for missing or invalid settings."""
    wanted = Wanted(base_url, region, project, os.environ if environ is None else environ)
    for name, value, is_valid in (("region", region, _REGION), ("project", project, _PROJECT)):
        if value and not is_valid(value):
            raise ConfigurationError(f"{value!r} is not a valid {name}.", hint=f"Correct {name}.")
    return _PLACES[provider.cloud or ""](provider, model, wanted)


def _bound(source: Callable[[], KeySource], provider: Provider, wanted: Wanted) -> Callable[[], Credential]:
    """A credential that is sent only to hosts of its cloud, and to the one in the cloud's variable."""
    return lambda: Credential(source(), hosts=hosts_of(provider, wanted.environ))


# --- Azure ------------------------------------------------------------------------------------------------------------


def _azure(provider: Provider, model: str, wanted: Wanted) -> Place:
    endpoint = wanted.base_url or wanted.variable("AZURE_OPENAI_ENDPOINT")
    if not endpoint:
        message = f"There is no address for {provider.name}: which resource has the deployment {model!r}?"
        hint = "Pass base_url='https://NAME.openai.azure.com', or set AZURE_OPENAI_ENDPOINT."
        raise ConfigurationError(message, hint=hint)
    host = host_of(endpoint)
    where = "ai" if host.endswith(".services.ai.azure.com") else "cognitiveservices"
    scope = f"https://{where}.azure.{'us' if host.endswith('.us') else 'com'}/.default"
    identity = _bound(lambda: entra_token(scope), provider, wanted)
    return Place(_azure_url(endpoint, model, wanted, chat=provider.dialect == "openai_chat"), identity)


def _azure_url(endpoint: str, model: str, wanted: Wanted, *, chat: bool) -> str:
    """The base URL: with the v1 paths, unless the address has an api-version or a deployment, as the classic ones."""
    address, _, query = endpoint.partition("?")
    address = address.rstrip("/")
    path = urlsplit(address).path.strip("/")
    if "api-version=" not in query and "/deployments" not in address:
        is_bare = path in ("", "openai") or (path.startswith("api/projects/") and "/openai" not in path)
        return address.removesuffix("/openai") + "/openai/v1" if is_bare else endpoint
    if "api-version=" not in query:
        version = wanted.variable("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")
        if not version:
            message = "The classic paths of Azure need a version, and the base URL has none."
            hint = "Append ?api-version=2024-10-21, or remove the path: the v1 paths need no version."
            raise ConfigurationError(message, hint=hint)
        query = "&".join(filter(None, [query, f"api-version={version}"]))
    if path in ("", "openai"):
        address = address.removesuffix("/openai") + "/openai" + (f"/deployments/{model}" if chat else "")
    return f"{address}?{query}"


# --- Vertex AI --------------------------------------------------------------------------------------------------------

_FULL_NAME: Final = re.compile(r"projects/[a-z0-9.:-]+/locations/([a-z0-9-]+)/.+").fullmatch


def _vertex(provider: Provider, model: str, wanted: Wanted) -> Place:
    identity = _bound(google_token, provider, wanted)
    named = _FULL_NAME(model)
    if (wanted.base_url or named) and (wanted.region or wanted.project):
        first, other = ("base_url" if wanted.base_url else "the model's name"), "region" if wanted.region else "project"
        message = f"{provider.name} takes its address from {first}, so {other} has no effect."
        raise ConfigurationError(message, hint=f"Remove {other}, or pass only region and project.")
    if wanted.base_url:
        return Place(wanted.base_url, identity)
    if named is not None:  # the name contains the location
        return Place(f"https://{_vertex_host(named[1])}", identity)
    region = wanted.region or wanted.variable("GOOGLE_CLOUD_LOCATION", "CLOUD_ML_REGION") or "global"
    project = wanted.project or wanted.variable("GOOGLE_CLOUD_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID")
    project = project or _project_of_account(wanted)
    if not project:
        message = f"{provider.name} needs your Google Cloud project."
        hint = "Pass project='…', or set GOOGLE_CLOUD_PROJECT; the region is region='…' or GOOGLE_CLOUD_LOCATION."
        raise ConfigurationError(message, hint=hint)
    version = "v1beta1" if provider.dialect == "gemini" else "v1"
    return Place(f"https://{_vertex_host(region)}/{version}/projects/{project}/locations/{region}", identity)


def _vertex_host(region: str) -> str:
    if region == "global":
        return "aiplatform.googleapis.com"
    is_wide = region in ("us", "eu")
    return f"aiplatform.{region}.rep.googleapis.com" if is_wide else f"{region}-aiplatform.googleapis.com"


def _project_of_account(wanted: Wanted) -> str:
    """The project in the service account's file, if there is one."""
    from pathlib import Path  # few programs need it

    try:
        path = Path(wanted.variable("GOOGLE_APPLICATION_CREDENTIALS"))
        return str(decode_as(path.read_bytes(), dict[str, object]).get("project_id") or "")
    except (OSError, msgspec.MsgspecError):
        return ""


# --- Amazon -----------------------------------------------------------------------------------------------------------

_SET_REGION: Final = "Pass region='us-east-1', or set AWS_REGION."


def _amazon(provider: Provider, model: str, wanted: Wanted) -> Place:
    mantle = provider.name.startswith("bedrock-mantle")
    base_url = wanted.base_url or ("" if mantle else wanted.variable("AWS_ENDPOINT_URL_BEDROCK_RUNTIME"))
    found = _REGION_IN_ARN(model) or _REGION_IN_HOST(host_of(base_url))
    region = wanted.region or (found[1] if found else "") or region_of(wanted.environ)
    unknown = f"{provider.name} needs the AWS region of the model."
    if not region and not base_url:
        raise ConfigurationError(unknown, hint=_SET_REGION)
    if not base_url and mantle:
        base_url = f"https://bedrock-mantle.{region}.api.aws{_mantle_path(model)}"
    elif not base_url:
        base_url = f"https://bedrock-runtime.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    service = "bedrock-mantle" if mantle else "bedrock"

    def sign(request: HttpRequest, keys: AwsKeys) -> Mapping[str, str]:
        if not region:
            raise ConfigurationError(unknown, hint=_SET_REGION)
        return signature(request, keys, region=region, service=service, now=time.time())

    return Place(base_url, _bound(lambda: aws_keys(environ=wanted.environ), provider, wanted), sign)


_REGION_IN_ARN: Final = re.compile(r"arn:[^:]*:bedrock:([a-z0-9-]+):.*").fullmatch
_REGION_IN_HOST: Final = re.compile(r"bedrock-(?:runtime|mantle)(?:-fips)?\.([a-z0-9-]+)\..*").fullmatch


def _mantle_path(model: str) -> str:
    """The path of a model on Mantle: OpenAI's closed models have their own."""
    closed = model.startswith("openai.") and not model.startswith("openai.gpt-oss")
    return "/openai/v1" if closed else "/v1"


_PLACES: Final = {"amazon": _amazon, "azure": _azure, "google": _vertex}
