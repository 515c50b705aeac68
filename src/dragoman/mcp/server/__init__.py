"""A set of tools served over MCP.

app.py         McpServer: lists and calls, through the executor
catalogue.py   what is told of the tools, and what their structured results must look like
offers.py      resources and prompts: anything with a name that can be read
relay.py       progress, from any thread to the wire
notices.py     telling clients that a list has changed
stdio.py       the door for a parent process        http.py   the door for HTTP      guard.py   … who may come in
"""
