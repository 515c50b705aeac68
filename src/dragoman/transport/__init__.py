"""The way to a server and back: bytes out, bytes in.

    protocol.py              what a transport is, in two colours; requests, timeouts, limits
    bases.py                 the common part of transports, for whoever writes another one
    troubles.py              what can go wrong, in words for people
    addresses.py             hosts and origins; base_url.py: which addresses a provider may have
    environment.py           proxies and certificate authorities
    secret_headers.py        which headers carry keys
    retry.py                 whether to try again and when; rate_limits.py: what the server says about it
    socket_transport.py      plain, on sockets     ┐ both on http1.py (HTTP/1.1 without I/O),
    asyncio_transport.py     async, on asyncio     ┘ routes.py and decoding.py; asyncio_connection.py
    pyreqwest_transport.py   both colours, on pyreqwest; pyreqwest_troubles.py: what its errors mean
    httpx2_transport.py      both colours, on httpx2 (an extra)
    tape/                    record, replay and redact around any of them; pytest_plugin.py: a fixture for that

Nothing is imported here: each transport costs what its library costs, and a program uses one.
"""
