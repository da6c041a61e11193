//! Whatever lines come in, the server answers the next request.

use crate::client::Client;
use crate::fake::Fake;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Messages that are right, to be broken.
const SEEDS: [&str; 7] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"agent_run","arguments":{"request":"a","temperature":1}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"agent_status","arguments":{"task_id":"0d9bd1f6-0e3c-4a6f-8d52-4f1f8a2f7c11"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#,
    r#"{"jsonrpc":"2.0","id":9,"result":{}}"#,
];

fn line() -> impl Strategy<Value = Vec<u8>> {
    let noise = proptest::collection::vec(any::<u8>(), 0..80);
    let whole = proptest::sample::select(&SEEDS[..]).prop_map(|seed| seed.as_bytes().to_vec());
    let broken = (
        proptest::sample::select(&SEEDS[..]),
        any::<proptest::sample::Index>(),
        any::<u8>(),
        0..4_u8,
    )
        .prop_map(|(seed, at, byte, how)| {
            let mut line = seed.as_bytes().to_vec();
            let at = at.index(line.len());
            match how {
                0 => line[at] = byte,
                1 => line.truncate(at),
                2 => line.insert(at, byte),
                _ => drop(line.remove(at)),
            }
            line
        });
    prop_oneof![noise, whole, broken]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_line_kills_the_server(lines in proptest::collection::vec(line(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let fake = Fake::default();
            let mut client = Client::start(&fake);
            for line in lines {
                client.bytes(&line).await;
                client.bytes("\n").await;
            }
            // Answered in every lifecycle: with a result, or with -32601 in the era without ping.
            client.send(&json!({"jsonrpc": "2.0", "id": "still here", "method": "ping"})).await;
            let mut reply = Value::Null;
            while reply["id"] != "still here" {
                reply = client.line().await;
                assert_eq!(reply["jsonrpc"], "2.0");
            }
            client.finish().await;
            assert_eq!(fake.with(|state| state.gone.len()), 1);
        });
    }
}
