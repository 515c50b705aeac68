"""Files from the server's side: those of OpenAI, Anthropic and Gemini. They are kept until the simulator is closed."""

from __future__ import annotations

import re
from email.parser import BytesParser
from email.policy import HTTP
from typing import Final, cast

from .anthropic import ANTHROPIC
from .dialect import Refusal, Route
from .exchange import JsonObject, Request
from .gemini import GEMINI
from .openai_chat import CREATED, OPENAI_CHAT

_NAMED: Final = re.compile(rb"(?:file[-_]|files/)sim[0-9]+")
_MOMENT: Final = "2026-01-01T00:00:00Z"
_END: Final = "2126-01-01T00:00:00Z"


class Files:
    """The files of one simulator."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self._count: int = 0
        self._begun: dict[str, str] = {}
        """The types of what is being uploaded to Gemini, by the upload's id."""

    @property
    def routes(self) -> tuple[Route, ...]:
        claude = "anthropic-version"
        return (
            Route("POST", r".*/upload/v1(?:beta)?/files", GEMINI, self._gemini_upload),
            Route("DELETE", r".*/files/sim[0-9]+", GEMINI, self._delete),
            Route("POST", r".*/v1/files", ANTHROPIC, self._claude_upload, claude),
            Route("DELETE", r".*/v1/files/[^/:]+", ANTHROPIC, self._delete, claude),
            Route("POST", r".*/v1/files", OPENAI_CHAT, self._openai_upload),
            Route("DELETE", r".*/v1/files/[^/:]+", OPENAI_CHAT, self._delete),
            Route("GET", r".*/v1/files/[^/:]+/content", OPENAI_CHAT, self._openai_content),
        )

    def missing(self, body: bytes) -> str:
        """The name of a file in a request that is not here; empty if all are."""
        return next((name for found in _NAMED.findall(body) if (name := found.decode()) not in self.data), "")

    def _keep(self, prefix: str, data: bytes) -> str:
        name = f"{prefix}sim{self._count:06d}"
        self._count += 1
        self.data[name] = data
        return name

    async def _openai_upload(self, request: Request) -> JsonObject:
        data = _file_in(request)
        id = self._keep("file-", data)
        return {
            "id": id,
            "object": "file",
            "bytes": len(data),
            "created_at": CREATED,
            "filename": id,
            "purpose": "batch",
        }

    async def _openai_content(self, request: Request) -> bytes:
        name = request.path.split("/")[-2]
        if name not in self.data:
            raise Refusal(404, f"No such File object: {name}")
        return self.data[name]

    async def _claude_upload(self, request: Request) -> JsonObject:
        data = _file_in(request)
        id = self._keep("file_", data)
        kind = "application/octet-stream"
        return {
            "id": id,
            "type": "file",
            "filename": id,
            "mime_type": kind,
            "size_bytes": len(data),
            "created_at": _MOMENT,
        }

    async def _gemini_upload(self, request: Request) -> tuple[JsonObject, dict[str, str]]:
        if request.headers.get("x-goog-upload-command") == "start":
            id = str(len(self._begun))
            self._begun[id] = request.headers.get("x-goog-upload-header-content-type", "")
            place = f"http://{request.headers.get('host', '')}{request.path}?upload_id={id}&upload_protocol=resumable"
            return {}, {"x-goog-upload-url": place, "x-goog-upload-status": "active"}
        name = self._keep("files/", request.raw)
        uri = f"http://{request.headers.get('host', '')}/v1beta/{name}"
        file = {"name": name, "uri": uri, "state": "ACTIVE", "sizeBytes": str(len(request.raw)), "expirationTime": _END}
        kind = self._begun.get(request.query.get("upload_id", ""), "")
        return {"file": {**file, "mimeType": kind}}, {"x-goog-upload-status": "final"}

    async def _delete(self, request: Request) -> JsonObject:
        name = request.path.rpartition("/")[2]
        for known in (name, f"files/{name}"):
            if self.data.pop(known, None) is not None:
                return {"id": name, "deleted": True}
        raise Refusal(404, f"No such file: {name}")


def _file_in(request: Request) -> bytes:
    """The file of a form."""
    head = f"content-type: {request.headers.get('content-type', '')}\r\n\r\n".encode()
    form = BytesParser(policy=HTTP).parsebytes(head + request.raw)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_filename() is not None:
            return cast("bytes", part.get_payload(decode=True))
    raise Refusal(400, "The form has no file.")
