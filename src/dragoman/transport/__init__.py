"""The way to a server and back: bytes out, bytes in.

protocol.py says what a transport is, errors.py what can go wrong, retry.py whether to try again. The transports for
plain programs (socket_transport.py) and event loops (asyncio_transport.py) share pool.py, http1.py and routes.py;
httpx_adapter.py wraps a client of httpx2; tape.py records and replays around any of them.
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
