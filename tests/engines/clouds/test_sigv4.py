"""Signatures are those of Amazon's own library, on any request."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from unittest.mock import patch
from urllib.parse import quote

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from dragoman.engines import AwsKeys
from dragoman.engines.clouds.sigv4 import signature
from dragoman.transport import HttpRequest

LETTERS = "abcXYZ019 -_.~:/%+&=é日\u0301!*'()[]@$,;"


def _text(chance: random.Random, most: int) -> str:
    return "".join(chance.choices(LETTERS, k=chance.randint(1, most)))


def _request(chance: random.Random) -> HttpRequest:
    path = "/".join([quote(_text(chance, 9), safe=chance.choice(["", "/~"])) for _ in range(chance.randint(0, 4))])
    query = "&".join(
        [f"{quote(_text(chance, 5))}={quote(_text(chance, 5), safe='')}" for _ in range(chance.randint(0, 3))]
    )
    host = chance.choice(["bedrock-runtime.us-east-1.amazonaws.com", "127.0.0.1:8443", "h.example:443", "[::1]:9000"])
    scheme = chance.choice(["https", "http"])
    headers = (
        {"content-type": chance.choice(["application/json", "text/x;  charset=a"])} if chance.random() < 0.8 else {}
    )
    headers |= {
        f"X-Amzn-{_name(chance)}": _text(chance, 12).encode("ascii", "replace").decode()
        for _ in range(chance.randint(0, 3))
    }
    return HttpRequest(
        url=f"{scheme}://{host}/{path}{'?' if query else ''}{query}",
        method=chance.choice(["POST", "GET", "PUT"]),
        headers=headers,
        body=chance.randbytes(chance.randint(0, 200)),
    )


def _name(chance: random.Random) -> str:
    return "".join(chance.choices("abcDEF-", k=5))


def _by_amazon(request: HttpRequest, keys: AwsKeys, region: str, service: str, now: float) -> dict[str, str]:
    asked = AWSRequest(method=request.method, url=request.url, headers=dict(request.headers), data=request.body)
    moment = datetime.fromtimestamp(now, UTC)
    with patch.object(auth, "get_current_datetime", lambda remove_tzinfo=True: moment.replace(tzinfo=None)):
        auth.SigV4Auth(Credentials(keys.access_key, keys.secret_key, keys.token), service, region).add_auth(asked)
    return {name.lower(): value for name, value in asked.headers.items()}


def test_five_hundred_signatures_are_amazons() -> None:
    chance = random.Random(20261117)
    for _ in range(500):
        request = _request(chance)
        keys = AwsKeys(_name(chance), _text(chance, 40), chance.choice([None, _name(chance) * 9]))
        region, service = chance.choice(["us-east-1", "eu-west-3"]), chance.choice(["bedrock", "sts", "bedrock-mantle"])
        now = chance.randint(1_500_000_000, 2_000_000_000)
        ours = signature(request, keys, region=region, service=service, now=now)
        theirs = _by_amazon(request, keys, region, service, now)
        assert ours == {name: theirs[name] for name in ours}, request.url
