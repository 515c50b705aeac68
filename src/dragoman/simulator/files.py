"""Files from the server's side: those of OpenAI, Anthropic and Gemini. They are kept until the simulator is closed."""

from __future__ import annotations

import re
from email.parser import BytesParser
from email.policy import HTTP
from typing import Final, cast
from urllib.parse import quote

from .anthropic import ANTHROPIC
from .dialect import Refusal, Route
from .exchange import JsonObject, Request
from .gemini import GEMINI
from .openai_chat import CREATED, OPENAI_CHAT

_REFERENCE: Final = re.compile(rb"(?:file[-_]|files/)sim[0-9]+")
_CLAUDE: Final = "anthropic-version"


class Files:
    """The files of one simulator."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self._count = 0
        self.routes = (
            Route("POST", r".*/upload/v1(?:beta)?/files", GEMINI, self._upload_gemini),
            Route("DELETE", r".*/files/sim[0-9]+", GEMINI, self._delete),
            Route("POST", r".*/v1/files", ANTHROPIC, self._upload_claude, _CLAUDE),
            Route("DELETE", r".*/v1/files/[^/:]+", ANTHROPIC, self._delete, _CLAUDE),
            Route("POST", r".*/v1/files", OPENAI_CHAT, self._upload_openai),
            Route("DELETE", r".*/v1/files/[^/:]+", OPENAI_CHAT, self._delete),
            Route("GET", r".*/v1/files/[^/:]+/content", OPENAI_CHAT, self._openai_content),
        )

    def missing(self, body: bytes) -> str:
        """The name of a file in a request that does not exist; empty if all do."""
        return next((name for found in _REFERENCE.findall(body) if (name := found.decode()) not in self.data), "")

    def _keep(self, prefix: str, data: bytes) -> str:
        name = f"{prefix}sim{self._count:06d}"
        self._count += 1
        self.data[name] = data
        return name

    async def _upload_openai(self, request: Request) -> JsonObject:
        data = _file_in(request)
        id = self._keep("file-", data)
        sizes = {"bytes": len(data), "created_at": CREATED}
        return {"id": id, "object": "file", "filename": id, "purpose": "batch", **sizes}

    async def _openai_content(self, request: Request) -> bytes:
        name = request.path.split("/")[-2]
        if name not in self.data:
            raise Refusal(404, f"No such File object: {name}")
        return self.data[name]

    async def _upload_claude(self, request: Request) -> JsonObject:
        data = _file_in(request)
        id = self._keep("file_", data)
        about = {"mime_type": "application/octet-stream", "created_at": "2026-01-01T00:00:00Z"}
        return {"id": id, "type": "file", "filename": id, "size_bytes": len(data), **about}

    async def _upload_gemini(self, request: Request) -> tuple[JsonObject, dict[str, str]]:
        """An upload has two steps: the first returns the address of the second."""
        server = f"http://{request.headers.get('host', '')}"
        if request.headers.get("x-goog-upload-command") == "start":
            kind = request.headers.get("x-goog-upload-header-content-type", "")
            address = f"{server}{request.path}?upload_protocol=resumable&mime_type={quote(kind)}"
            return {}, {"x-goog-upload-url": address, "x-goog-upload-status": "active"}
        name, size = self._keep("files/", request.raw), str(len(request.raw))
        file = {"name": name, "uri": f"{server}/v1beta/{name}", "sizeBytes": size, "state": "ACTIVE"}
        file |= {"mimeType": request.query.get("mime_type", ""), "expirationTime": "2126-01-01T00:00:00Z"}
        return {"file": file}, {"x-goog-upload-status": "final"}

    async def _delete(self, request: Request) -> JsonObject:
        name = request.path.rpartition("/")[2]
        for known in (name, f"files/{name}"):
            if self.data.pop(known, None) is not None:
                return {"id": name, "deleted": True}
        raise Refusal(404, f"No such file: {name}")


def _file_in(request: Request) -> bytes:
    """The file in a multipart form."""
    head = f"content-type: {request.headers.get('content-type', '')}\r\n\r\n".encode()
    form = BytesParser(policy=HTTP).parsebytes(head + request.raw)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_filename() is not None:
            return cast("bytes", part.get_payload(decode=True))
    raise Refusal(400, "The form has no file.")
