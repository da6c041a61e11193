//! P-3: `file_search` in text mode over 50,000 files against ripgrep on the same tree, side by side.
//!
//! `cargo run --release -p runtime --example search_bench [FILES [ROUNDS]]`. Both read the same files (hidden and ignored
//! ones too, no link followed) and count every matching line; the rounds alternate, and the medians are compared.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops where its setting fails"
)]
#![expect(
    clippy::disallowed_types,
    reason = "ripgrep is what is measured against"
)]
#![expect(
    clippy::disallowed_macros,
    reason = "the figures go to standard output"
)]

use policy::call::{ApprovedCall, ProposedCall, Scope};
use policy::effective::{
    Ceiling, EffectivePolicy, GrantedRoot, NetworkPolicy, Origin, PartialRule, PolicyDraft,
    RehashRule, ResourceLimits, RootKind, SandboxMode, ShellRule,
};
use policy::layers::PermissionLayers;
use policy::tool::ToolName;
use policy::{Fault, Rights, Untrusted};
use runtime::tools::{EffectEnd, EffectLog, Intent, ToolContext, ToolLimits, Walker, dispatch};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NEEDLE: &str = "needle_in_the_haystack";

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let files: usize = numbers.next().unwrap_or(50_000);
    let rounds: usize = numbers.next().unwrap_or(15);
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let lines = generate(&root, files);
    let policy = Arc::new(policy_for(&root));
    let walker = Walker::open(&policy).unwrap();
    let mut pairs = Vec::new();
    for round in 0..=rounds {
        // Who goes first takes turns, and each pair is compared by itself: other work on the machine hits both.
        let (ours, theirs) = if round % 2 == 0 {
            let ours = search(&policy, &walker);
            (ours, ripgrep(&root))
        } else {
            let theirs = ripgrep(&root);
            (search(&policy, &walker), theirs)
        };
        assert_eq!(ours.0, lines, "ours found other lines");
        assert_eq!(theirs.0, lines, "ripgrep found other lines");
        if round > 0 {
            pairs.push((ours.1, theirs.1));
        }
    }
    let ours = median(pairs.iter().map(|pair| pair.0.as_secs_f64()));
    let theirs = median(pairs.iter().map(|pair| pair.1.as_secs_f64()));
    let ratio = median(
        pairs
            .iter()
            .map(|(ours, theirs)| ours.as_secs_f64() / theirs.as_secs_f64()),
    );
    println!(
        "P-3 files={files} matching_lines={lines} ours={ours:.3}s ripgrep={theirs:.3}s ratio={ratio:.3} target=1.100"
    );
}

/// Directories of 50 files in three levels, most of them small, some larger; every hundredth line group has the needle.
fn generate(root: &Path, files: usize) -> u64 {
    let mut lines = 0;
    for number in 0..files {
        let place = root.join(format!("d{}/e{}", number / 2_500, number / 50 % 50));
        if number % 50 == 0 {
            std::fs::create_dir_all(&place).unwrap();
        }
        let size = if number % 100 == 0 {
            1_000
        } else {
            20 + number % 60
        };
        let mut text = String::new();
        for line in 0..size {
            text.push_str(&format!("let value_{line} = compute({number}, {line});\n"));
            if number % 20 == 0 && line == 10 {
                text.push_str(&format!("    // {NEEDLE} {number}\n"));
                lines += 1;
            }
        }
        let hidden = if number % 37 == 0 { "." } else { "" };
        std::fs::write(place.join(format!("{hidden}f{number}.rs")), text).unwrap();
    }
    lines
}

fn search(policy: &Arc<EffectivePolicy>, walker: &Walker) -> (u64, Duration) {
    let started = Instant::now();
    let context = ToolContext {
        policy,
        walker,
        limits: ToolLimits::default(),
        effect_log: &NoEffects,
        sandbox: None,
        task_temp: Path::new("/nonexistent"),
        cancelled: None,
        fuse: None,
    };
    let result = dispatch(approved(policy, walker), &context);
    let time = started.elapsed();
    assert!(result.ok, "{}", result.output);
    let count = result.output.split(' ').next().unwrap().parse().unwrap();
    (count, time)
}

fn approved(policy: &EffectivePolicy, walker: &Walker) -> ApprovedCall {
    let arguments =
        serde_json::json!({"root": ".", "mode": "text", "query": NEEDLE, "max_results": 1000});
    let call = ProposedCall {
        tool: Untrusted::new("file_search".to_owned()),
        arguments: Untrusted::new(arguments),
    };
    let scope = Scope {
        whitelist: BTreeSet::from(ToolName::ALL),
        required_tools: BTreeSet::from(ToolName::ALL),
    };
    let call = call.validate().unwrap().scope(&scope).unwrap();
    let mut layers = PermissionLayers::default_box(BTreeSet::new());
    let permitted = call.plausible().unwrap().permit(&mut layers).unwrap();
    let walked = walker.walk_call(policy, permitted.arguments()).unwrap();
    permitted
        .resolve(policy, walked)
        .unwrap()
        .approve()
        .unwrap()
}

fn ripgrep(root: &Path) -> (u64, Duration) {
    let started = Instant::now();
    let output = Command::new("rg")
        .args([
            "--hidden",
            "--no-ignore",
            "-F",
            "-n",
            "--no-heading",
            NEEDLE,
            ".",
        ])
        .current_dir(root)
        .output()
        .unwrap();
    let time = started.elapsed();
    let count = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    (count as u64, time)
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// A search has no effect to record.
struct NoEffects;

impl EffectLog for NoEffects {
    type Token = std::convert::Infallible;

    fn before(&self, _: &Intent) -> Result<Self::Token, Fault> {
        panic!("a search changes nothing")
    }

    fn after(&self, token: Self::Token, _: EffectEnd) -> Result<(), Fault> {
        match token {}
    }
}

fn policy_for(root: &Path) -> EffectivePolicy {
    PolicyDraft {
        mode: SandboxMode::WorkspaceWrite,
        roots: vec![GrantedRoot {
            path: root.to_owned(),
            kind: RootKind::Directory,
            rights: Rights::ALL,
            origins: BTreeSet::from([Origin::Workspace]),
        }],
        entries: Vec::new(),
        network: NetworkPolicy::None,
        resources: ResourceLimits {
            memory_bytes: 1 << 30,
            process_limit: 64,
            execution_timeout: Duration::from_secs(60),
            output_bytes: 64 * 1024,
            private_bytes: 1 << 26,
        },
        environment: BTreeMap::new(),
        protect: vec![".git/config".into(), ".git/hooks".into()],
        own_files: Vec::new(),
        shells: ShellRule::Allow,
        rehash: RehashRule::OnChange,
        partial: PartialRule::Deny,
        workspace_root: root.to_owned(),
    }
    .freeze(&Ceiling::mode(SandboxMode::WorkspaceWrite))
    .unwrap()
}
