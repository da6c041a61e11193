//! What must keep working (`sandbox.md`; ST-04, ST-10, ST-25): each line is a thing that some sandbox broke for its users.

use crate::support::world::{text, world};
use crate::support::{Spec, once_command, ran_of, shell, standing};
use crate::{Checked, Test};
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

pub const TESTS: &[(&str, Test)] = &[
    ("st_25_programs_keep_working", programs_keep_working),
    (
        "st_25_entries_and_their_descendants_stay_inside",
        descendants,
    ),
    ("a_hundred_megabytes_arrive_byte_for_byte", output_is_exact),
];

struct Line {
    what: &'static str,
    /// Below /usr/bin.
    needs: &'static [&'static str],
    rights: &'static str,
    private: bool,
    script: &'static str,
    /// All of standard output.
    says: &'static str,
}

const fn line(
    what: &'static str,
    needs: &'static [&'static str],
    script: &'static str,
    says: &'static str,
) -> Line {
    Line {
        what,
        needs,
        rights: "rwd",
        private: false,
        script,
        says,
    }
}

impl Line {
    const fn private(self) -> Self {
        Line {
            private: true,
            ..self
        }
    }
    const fn rights(self, rights: &'static str) -> Self {
        Line { rights, ..self }
    }
}

const LINES: &[Line] = &[
    line(
        "asyncio: its socket pair, a child, a signal handler",
        &["python3"],
        "python3 -c '
import asyncio, signal, os
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: print(\"signal\", flush=True))
    os.kill(os.getpid(), signal.SIGUSR1)
    p = await asyncio.create_subprocess_exec(\"cat\", stdin=-1, stdout=-1)
    print((await p.communicate(b\"through a child\"))[0].decode())
asyncio.run(main())'",
        "signal\nthrough a child\n",
    ),
    line(
        "multiprocessing: semaphores, shared memory, fork and spawn",
        &["python3"],
        "cat > m.py <<'X'
import multiprocessing as mp
from multiprocessing import shared_memory
def f(x): return x * x
if __name__ == '__main__':
    for way in ('fork', 'spawn'):
        with mp.get_context(way).Pool(2) as pool: print(pool.map(f, [2, 3]))
    memory = shared_memory.SharedMemory(create=True, size=4096)
    memory.buf[0] = 7; print(memory.buf[0]); memory.close(); memory.unlink()
X
python3 m.py",
        "[4, 9]\n[4, 9]\n7\n",
    ),
    line(
        "a pseudo-terminal, and /dev/tty inside of it",
        &["python3"],
        "python3 -c '
import os, pty, sys
def there():
    try: os.close(os.open(\"/dev/tty\", os.O_RDWR)); return \"a terminal\"
    except OSError as error: return error.errno
print(there(), flush=True)
pid, fd = pty.fork()
if pid == 0:
    print(there(), os.isatty(0), flush=True)
    os._exit(0)
print(os.read(fd, 100).decode().strip()); os.waitpid(pid, 0)'",
        // ENXIO: no terminal of its own, as under cron.
        "6\na terminal True\n",
    ),
    line(
        "mkstemp and mktemp",
        &["python3"],
        "python3 -c 'import tempfile, os; f, p = tempfile.mkstemp(); os.write(f, b\"x\"); print(os.path.getsize(p))'; test -f $(mktemp) && echo file",
        "1\nfile\n",
    ),
    line(
        "a compiler, and what it made (ST-04)",
        &["cc"],
        "printf '#include <stdio.h>\\nint main(){puts(\"built\");return 0;}' > a.c && cc a.c -o a.out && ./a.out",
        "built\n",
    )
    .rights("rwdx"),
    line(
        "make with parallel jobs",
        &["make"],
        "printf 'all: a b\\na b:\\n\\t@echo made > $@\\n' > Makefile && make -s -j2 && cat a b",
        "made\nmade\n",
    ),
    line(
        "a node child with pipes",
        &["node"],
        "node -e \"const c=require('child_process').spawn('cat');let o='';c.stdout.on('data',d=>o+=d);c.on('close',n=>console.log(o,n));c.stdin.end('piped')\"",
        "piped 0\n",
    ),
    line(
        "node worker threads and timers",
        &["node"],
        "node -e \"const {Worker,isMainThread,parentPort}=require('worker_threads');new Worker('require(\\\"worker_threads\\\").parentPort.postMessage(41+1)',{eval:true}).on('message',m=>console.log(m))\"",
        "42\n",
    ),
    line(
        "node's list of network interfaces, under private",
        &["node"],
        "node -e \"console.log(Object.keys(require('os').networkInterfaces()).join())\"",
        "lo\n",
    )
    .private(),
    line(
        // Netlink is closed with every other socket under none; node says so, and nothing else of it breaks.
        "node without network interfaces, under none",
        &["node"],
        "node -e \"try{require('os').networkInterfaces();console.log('none')}catch(e){console.log(e.code)};console.log(require('os').cpus().length>0)\"",
        "ERR_SYSTEM_ERROR\ntrue\n",
    ),
    line(
        "a server on localhost and its test, under private",
        &["python3"],
        "echo hello > page; python3 -c '
import http.server, threading, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer((\"127.0.0.1\", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = \"http://localhost:%d/page\" % server.server_port
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url).read().decode(), end=\"\")'",
        "hello\n",
    )
    .private(),
    line(
        // /proc is read-only as a whole; the system call for one's own name works.
        "a program's own name",
        &["python3"],
        "python3 -c '
import ctypes
ctypes.CDLL(None).prctl(15, b\"renamed\", 0, 0, 0)
print(open(\"/proc/self/comm\").read(), end=\"\")
try: open(\"/proc/self/comm\", \"w\")
except OSError as error: print(error.errno)'",
        "renamed\n30\n",
    ),
    line(
        "names of services, protocols and file types",
        &["python3"],
        "python3 -c 'import socket, mimetypes; print(socket.getservbyname(\"https\"), socket.getprotobyname(\"tcp\"), mimetypes.guess_type(\"a.svg\")[0])'",
        "443 6 image/svg+xml\n",
    ),
    line(
        "the time zone database and local time",
        &["python3"],
        "TZ=Asia/Tokyo date -d @0 +%H; python3 -c 'import zoneinfo; print(zoneinfo.ZoneInfo(\"Europe/Paris\"))'",
        "09\nEurope/Paris\n",
    ),
    line(
        "curses with the terminals the system knows",
        &["python3"],
        "python3 -c 'import curses; curses.setupterm(\"xterm\"); print(curses.tigetnum(\"colors\") > 0)'",
        "True\n",
    ),
    line(
        "which system this is",
        &["python3"],
        "grep -c ^ID= /etc/os-release",
        "1\n",
    ),
    line(
        "Java, whose configuration lies in /etc",
        &["java"],
        "printf 'class A { public static void main(String[] a) throws Exception { java.security.SecureRandom.getInstanceStrong(); System.out.println(\"java\"); } }' > A.java && java -Xmx64m -version >/dev/null 2>&1 && echo java",
        "java\n",
    ),
    line(
        "locks, sparse files, links and extended times in the workspace",
        &["python3"],
        "python3 -c '
import fcntl, os
f = open(\"lock\", \"w\"); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.truncate(\"lock\", 1 << 20); os.link(\"lock\", \"second\"); os.symlink(\"lock\", \"soft\"); os.utime(\"lock\", (1, 1))
os.rename(\"second\", \"third\"); os.mkfifo(\"pipe\"); print(os.stat(\"soft\").st_mtime)'",
        "1.0\n",
    ),
];

fn has(program: &str) -> bool {
    ["/usr/bin", "/usr/local/bin", "/bin"]
        .iter()
        .any(|place| Path::new(place).join(program).exists())
}

fn programs_keep_working() -> Checked {
    let mut failed = Vec::new();
    for line in LINES {
        if let Some(missing) = line.needs.iter().find(|program| !has(program)) {
            eprintln!("{}: left out, needs: {missing} below /usr", line.what);
            continue;
        }
        for once in [true, false] {
            let world = world();
            let mut spec = Spec::new(&world.workspace, line.rights);
            spec.private_network = line.private;
            spec.memory_mb = 2048;
            let said = if once {
                let output = once_command(&spec, &["/bin/sh", "-c", line.script]).output()?;
                (
                    String::from_utf8_lossy(&output.stdout).into_owned(),
                    String::from_utf8_lossy(&output.stderr).into_owned(),
                )
            } else {
                let sandbox = standing(&spec);
                let ran = ran_of(&sandbox.run(&shell(&spec, line.script))?);
                sandbox.end()?;
                (ran.stdout, ran.stderr)
            };
            if said.0 != line.says {
                failed.push(format!("{} (once: {once}): {said:?}", line.what));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// ST-10, ST-25: every usual entry starts every usual descendant, and that one sees no more than its entry.
fn descendants() -> Checked {
    const ENTRIES: &[(&str, &str)] = &[
        ("sh", "sh -c \"$CHILD\""),
        ("bash", "bash -c \"$CHILD\""),
        (
            "python3",
            "python3 -c 'import os, subprocess; subprocess.run([\"sh\", \"-c\", os.environ[\"CHILD\"]])'",
        ),
        (
            "node",
            "node -e 'require(\"child_process\").spawnSync(\"sh\",[\"-c\",process.env.CHILD],{stdio:\"inherit\"})'",
        ),
        ("git", "git -c alias.child='!sh -c \"$CHILD\"' child"),
        (
            "cc",
            "echo 'int x;' | cc -wrapper sh,-c,\"$CHILD\" -x c -c - -o /dev/null",
        ),
        (
            "make",
            "printf 'all:\\n\\t@sh -c \"$$CHILD\"\\n' | make -s -f -",
        ),
        (
            "cargo",
            "printf '[alias]\\n' >/dev/null; cargo --version >/dev/null && sh -c \"$CHILD\"",
        ),
    ];
    const CHILDREN: &[&str] = &["sh", "python3", "node", "git", "cc", "ls", "tar"];
    let world = world();
    let secret = text(&world.outside.join("secret"));
    let mut spec = Spec::new(&world.workspace, "rwd");
    spec.memory_mb = 2048;
    let sandbox = standing(&spec);
    let mut failed = Vec::new();
    for (entry, command) in ENTRIES {
        if !has(entry) {
            eprintln!("{entry}: left out, needs: {entry} below /usr");
            continue;
        }
        for child in CHILDREN.iter().filter(|child| has(child)) {
            let version = if *child == "sh" {
                "sh -c :"
            } else {
                &format!("{child} --version")
            };
            let script = format!(
                "export CHILD='{version} >/dev/null && echo ran; cat {secret} 2>/dev/null || echo inside; grep NoNewPrivs /proc/self/status'; {command}"
            );
            let ran = ran_of(&sandbox.run(&shell(&spec, &script))?);
            if !ran.stdout.starts_with("ran\ninside\nNoNewPrivs:\t1\n") {
                failed.push(format!("{entry} > {child}: {ran:?}"));
            }
        }
    }
    sandbox.end()?;
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Every byte value, in order, through exec's own standard output.
fn output_is_exact() -> Checked {
    if !has("python3") {
        eprintln!("left out, needs: python3 below /usr");
        return Ok(());
    }
    const BLOCKS: usize = 100;
    let world = world();
    let spec = Spec::new(&world.workspace, "r");
    let script = format!(
        "exec python3 -c 'import sys\nfor i in range({BLOCKS}): sys.stdout.buffer.write(bytes(range(256)) * 4096)'"
    );
    let mut child = once_command(&spec, &["/bin/sh", "-c", &script])
        .stdout(Stdio::piped())
        .spawn()?;
    let wanted: Vec<u8> = (0..=255u8).collect::<Vec<u8>>().repeat(4096);
    let mut stdout = child.stdout.take().unwrap();
    let mut block = vec![0; wanted.len()];
    for number in 0..BLOCKS {
        stdout.read_exact(&mut block)?;
        assert!(block == wanted, "block {number}");
    }
    assert_eq!(stdout.read(&mut block)?, 0);
    assert!(child.wait()?.success());
    Ok(())
}
