"""MCP servers' tools as sets of tools.

servers.py      McpServers: several servers, in both colours
connection.py   one server: connected, kept alive, asked
child.py        … a program of ours to start and to end      web.py   … behind an address
inlet.py        what a server may send: no more than that comes in      lines.py   … bytes into lines
tools.py        from a server's list to tools that can be called
trust.py        which of them are offered      pins.py   … given which version of each was approved
"""
