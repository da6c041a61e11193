// The official TypeScript SDK's server with one tool that echoes: over stdio, or stateless over HTTP with `http`.
import http from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

function server() {
  const server = new McpServer({ name: "echo", version: "1" });
  const inputSchema = { task_id: z.string() };
  server.registerTool("agent_status", { description: "echoes", inputSchema }, async ({ task_id }) => ({
    content: [{ type: "text", text: `task_id: ${task_id}` }],
  }));
  return server;
}

if (process.argv[2] === "http") {
  http
    .createServer(async (request, response) => {
      // As the SDK's documentation has it for a stateless server: a pair of its own for each request.
      const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
      response.on("close", () => transport.close());
      await server().connect(transport);
      await transport.handleRequest(request, response);
    })
    .listen(0, "127.0.0.1", function () {
      console.error(`ready: http://127.0.0.1:${this.address().port}/mcp`);
    });
} else {
  await server().connect(new StdioServerTransport());
}
