//! The MCP server: two tools, `agent_run` and `agent_status`, in front of the runtime (SPEC §5, DESIGN §5).
//!
//! The official SDK does the protocol: revisions, handshake, discovery, routing. Here is only what it leaves to a server:
//! two transports, [`stdio`] and Streamable HTTP ([`http`]), that survive what real clients send, two tools that check their arguments completely, and result
//! texts that model output cannot forge (X-ONELINE).
//!
//! Absent here: nothing is decided about what a run may do, and no field of any request reaches the policy (SEC-INV-02,
//! ST-15). No internal tool is listed or can be called (AGT-06). No process is started, no file is opened, no connection is
//! made, and only loopback is listened on. Nothing but protocol messages is written to the output (SEC-INV-12). There is no SSE and no approval over MCP
//! (MCP-TR-03, X-APPROVER). Texts in a user's language come from message ids only (I18N-01).
#![forbid(unsafe_code)]

mod ending;
pub mod http;
mod limits;
mod message;
mod port;
mod result_text;
mod server;
pub mod stdio;
mod tasks;
mod tools;

pub use http::{BindFault, HTTP_CLIENT, HttpLimits, HttpServer};
pub use limits::ServerLimits;
pub use port::{AgentPort, Served};
pub use stdio::{McpFault, STDIO_CLIENT, ServeEnd, serve_stdio};
pub use tasks::TaskParts;
