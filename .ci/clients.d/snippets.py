"""Takes the guide's snippets out of it and points them at this machine's program and configuration.

usage: snippets.py GUIDE PROGRAM CONFIGURATION OUT

Writes OUT/NAME.json as the guide has it, and prints a line a snippet: name, then the server's command as JSON.
"""

import json
import pathlib
import re
import sys

guide, program, configuration, out = sys.argv[1:5]
text = pathlib.Path(guide).read_text()
snippets = re.findall(r"<!-- snippet: (\S+) -->\n```json\n(.*?)```", text, re.S)
names = [name for name, _ in snippets]
assert names == ["claude-desktop", "claude-code", "cursor", "vs-code"], names
for name, snippet in snippets:
    whole = json.loads(snippet)
    key = "servers" if name == "vs-code" else "mcpServers"
    assert list(whole) == [key] and list(whole[key]) == ["agent-mcp"], f"{name}: {whole}"
    server = whole[key]["agent-mcp"]
    assert server["command"] == "agent-mcp" and server.get("type", "stdio") == "stdio", f"{name}: {server}"
    assert name != "vs-code" or server["type"] == "stdio"
    server["command"] = program
    server["args"] = [configuration if word.endswith("/agent.yaml") else word for word in server["args"]]
    assert configuration in server["args"], f"{name}: no configuration"
    pathlib.Path(out, f"{name}.json").write_text(json.dumps(whole))
    print(name, json.dumps(server))
