"""Fetching pages (`Fetch`).

tool.py         the tool: redirects, what is done with each type of content, how to read on
targets.py      which addresses a page may have, and which machines may be asked
resolving.py    from a host name to addresses, within a time limit
connection.py   one request to one address that was checked
charset.py      bytes as text, by what the page says of itself
page_text.py    the readable text of HTML
"""
