"""The way to a server and back: bytes out, bytes in.

    protocol.py            what a transport is; requests, timeouts, limits; bases for whoever writes another one
    errors.py              what can go wrong, as typed errors
    addresses.py           hosts and origins; which addresses a provider may have
    retry.py               whether to try again and when; what the server says about its limits
    socket_transport.py    for plain programs, on sockets  ┐ both on pool.py (connections and requests),
    asyncio_transport.py   for event loops, on asyncio     ┘ http1.py (HTTP/1.1) and routes.py (proxies, TLS)
    httpx_adapter.py       both colours, on a client of httpx2 (an extra)
    tape.py                record, replay and redact around any of them; pytest_plugin.py: a fixture for that

Nothing is imported here: each transport costs what its library costs, and a program uses one.
"""
