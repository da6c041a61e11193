//! The binary. Everything is in the library; here is only what must come first.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    // The same file is the sandbox's init when it is started as that; then this never returns.
    sandbox_linux::init();
    agent_mcp::main()
}
