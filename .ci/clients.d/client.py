"""One scripted run with the Python SDK's client: list, hand over, poll, check.

usage: client.py legacy|auto|2026-07-28 REVISION FILE TARGET [ARGUMENT…]

REVISION is the one that must be negotiated; TARGET is an address or a program.
"""

import asyncio
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters

FINAL = ("completed", "failed", "cancelled")


def field(text, name):
    for line in text.splitlines():
        if line.startswith(name + ": "):
            return line[len(name) + 2 :]
    raise SystemExit(f"no {name} in:\n{text}")


async def call(client, tool, arguments):
    result = await client.call_tool(tool, arguments)
    text = result.content[0].text
    assert not result.is_error, text
    return text


async def main(mode, revision, file, target, arguments):
    if not target.startswith("http://"):
        target = StdioServerParameters(command=target, args=arguments)
    async with Client(target, mode=mode) as client:
        assert client.protocol_version == revision, client.protocol_version
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert tools == ["agent_run", "agent_status"], tools
        text = await call(
            client, "agent_run", {"request": f"create {file} containing the word hello"}
        )
        task = field(text, "task_id")
        async with asyncio.timeout(60):
            while field(text, "status") not in FINAL:
                text = await call(client, "agent_status", {"task_id": task})
                await asyncio.sleep(0.05)
    assert field(text, "status") == "completed", text
    assert file in field(text, "result"), text


asyncio.run(main(*sys.argv[1:5], sys.argv[5:]))
