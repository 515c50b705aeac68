"""MCP, the Model Context Protocol: our tools for other programs, and other programs' tools for ours.

    server.py      a set of tools served, through stdio.py and http.py; catalogue.py says what there is
    client.py      MCP servers' tools as a set; connection.py is one server, child.py and web.py the ways to it
    remote_tools.py  a server's list as tools; content.py results, there and back; settings.py what users set

A name's module is loaded when the name is first used: neither the SDK nor an event loop is loaded before.
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
