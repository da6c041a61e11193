//! The application log: standard error and a rolling file (DESIGN §15.1). Its level comes from the configuration, never from
//! the command line. Nothing of a request or a model's text is logged here; the SDK and HTTP crates are held at errors, because
//! what they warn of is up to the client, and a reader of standard error who sleeps must not stop the server.

use policy::config::LogLevel;
use record::logs::RollingFile;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Starts logging; a second start in one process keeps the first.
pub fn start(level: LogLevel, file: RollingFile) {
    let filter = format!(
        "warn,rmcp=error,hyper=error,agent_mcp={0},runtime={0},mcp={0},record={0},policy={0},sandbox_linux={0}",
        level.word()
    );
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(Both {
            file: Arc::new(Mutex::new(file)),
        })
        .finish();
    drop(tracing::subscriber::set_global_default(subscriber));
}

/// Writes each line to standard error and to the file.
#[derive(Clone)]
struct Both {
    file: Arc<Mutex<RollingFile>>,
}

impl<'a> MakeWriter<'a> for Both {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Both {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A log that cannot be written is no reason to stop; the audit log is what must not fail.
        drop(io::stderr().write_all(line));
        drop(
            self.file
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write_all(line),
        );
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
