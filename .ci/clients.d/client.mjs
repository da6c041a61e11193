// One scripted run with the TypeScript SDK's client: list, hand over, poll, check.
//
// usage: client.mjs legacy|auto|2026-07-28 REVISION FILE TARGET [ARGUMENT…]
//
// REVISION is the one that must be negotiated; TARGET is an address or a program. The SDK's package is found from the
// working directory.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const resolve = createRequire(join(process.cwd(), "package.json")).resolve;
const load = (name) => import(pathToFileURL(resolve(name)).href);
const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");

const [mode, revision, file, target, ...args] = process.argv.slice(2);
const transport = target.startsWith("http://")
  ? new StreamableHTTPClientTransport(new URL(target))
  : new StdioClientTransport({ command: target, args });
const client = new Client(
  { name: "agent-mcp-ci", version: "1" },
  { versionNegotiation: { mode: ["legacy", "auto"].includes(mode) ? mode : { pin: mode } } },
);
await client.connect(transport);
assert.equal(client.getNegotiatedProtocolVersion(), revision);

const { tools } = await client.listTools();
assert.deepEqual(tools.map((tool) => tool.name), ["agent_run", "agent_status"]);

const call = async (name, values) => {
  const { content, isError } = await client.callTool({ name, arguments: values });
  assert.ok(!isError, content[0].text);
  return content[0].text;
};
const field = (text, name) => {
  const line = text.split("\n").find((line) => line.startsWith(`${name}: `));
  assert.ok(line, `no ${name} in:\n${text}`);
  return line.slice(name.length + 2);
};

let text = await call("agent_run", { request: `create ${file} containing the word hello` });
const task = field(text, "task_id");
const deadline = Date.now() + 60_000;
while (!["completed", "failed", "cancelled"].includes(field(text, "status"))) {
  assert.ok(Date.now() < deadline, text);
  text = await call("agent_status", { task_id: task });
  await new Promise((done) => setTimeout(done, 50));
}
assert.equal(field(text, "status"), "completed", text);
assert.ok(field(text, "result").includes(file), text);
await client.close();
