//! Locale files and the choice of a language, through the program as people start it.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![allow(
    clippy::disallowed_types,
    reason = "tests start the product as its users do"
)]

mod support;

use agent_mcp::locale::{Locale, Source, english};
use policy::{Code, Localize, Message};
use serde_json::json;
use std::path::Path;
use support::{Client, Place, RecordedModel, can_confine, command, field, text};

fn source(directory: &Path) -> Source {
    Source {
        directory: Some(directory.to_owned()),
        ..Source::default()
    }
}

/// A place whose locale directory holds this file.
fn place_with(name: &str, content: impl AsRef<[u8]>) -> Place {
    let place = Place::usual("http://127.0.0.1:9");
    let directory = place.config.parent().unwrap().join("config/locales");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(name), content).unwrap();
    place
}

/// I18N-03, AT-19, issue 4: `zh-CN.json` with three keys switches those three texts only, whatever the case of the flag.
#[test]
fn i18n_03_at_19_three_keys_switch_three_texts() {
    let place = place_with(
        "zh-CN.json",
        r#"{"check.fine": "可以启动。", "check.wrong": "无法启动。", "audit.empty": "audit: {directory} 中还没有记录"}"#,
    );
    for flag in ["zh-CN", "zh-cn", "ZH-Hans-CN"] {
        let output = place.output(&["audit", "verify", "--lang", flag]);
        let told = text(&output.stdout);
        // What the tag begins with is looked for, not what it resembles.
        if flag == "ZH-Hans-CN" {
            assert_eq!(output.status.code(), Some(2), "{told}");
            continue;
        }
        assert!(told.contains("中还没有记录"), "{told}");
    }
    let check = |lang: &str| text(&place.output(&["check", "--lang", lang]).stdout);
    let (chinese, english) = (check("zh-CN"), check("en"));
    let different: Vec<&str> = chinese
        .lines()
        .filter(|line| !english.contains(line))
        .collect();
    // The language is named in the table; else only the last line is another.
    assert!(
        different
            .iter()
            .all(|line| line.contains("zh-CN") || line.contains("启动")),
        "{different:?}"
    );
    assert!(chinese.contains("启动"), "{chinese}");
}

/// I18N-10: the chosen locale, what its tag begins with, `localization.fallback`, `en`, the key.
#[test]
fn i18n_10_the_order_of_fallbacks() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("pt-BR.json", r#"{"error.run.cancelled":"1"}"#),
        (
            "pt.json",
            r#"{"error.run.cancelled":"x","run.planning":"2"}"#,
        ),
        (
            "es.json",
            r#"{"error.run.cancelled":"x","run.planning":"x","run.stopping":"3"}"#,
        ),
        ("en.json", r#"{"run.stopping":"x","demo.interrupted":"4"}"#),
    ] {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let with_fallback = Source {
        fallback: Some("es".to_owned()),
        ..source(directory.path())
    };
    let locale = Locale::load("pt-br", &with_fallback).unwrap();
    assert_eq!(locale.language(), "pt-BR");
    for (id, wanted) in [
        ("error.run.cancelled", "1"),
        ("run.planning", "2"),
        ("run.stopping", "3"),
        ("demo.interrupted", "4"),
        ("check.fine", english()["check.fine"].as_str()),
        ("no.such.key", "no.such.key"),
    ] {
        assert_eq!(locale.text(&Message::new(id)), wanted, "{id}");
    }
    // A region of a language that is compiled in.
    let swiss = Locale::load("ja-JP", &Source::default()).unwrap();
    assert_eq!(swiss.text(&Message::new("check.fine")), "起動できます。");
    let unknown = Source {
        fallback: Some("tlh".to_owned()),
        ..Source::default()
    };
    assert_eq!(Locale::load("en", &unknown).err().unwrap()[0].target, "tlh");
}

/// I18N-11, ST-21: everything that is wrong in all files is told at once, each with file, key, line and column.
#[test]
fn i18n_11_st_21_everything_wrong_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        std::fs::write(directory.path().join(name), content).unwrap();
    };
    write(
        "aa.json",
        "{\n  \"run.plannig\": \"x\",\n  \"error.file.not_found\": \"{path}\",\n  \"check.fine\": 3,\n  \
         \"日本\": \"x\", \"check.fine\": \"a\",\n  \"check.fine\": \"b\",\n  \"check.wrong\": \"}{ {}\"\n}"
            .as_bytes(),
    );
    write("bb.json", b"{\"check.fine\": \"x\"");
    write("cc.json", b"\xef\xbb\xbf{}");
    write("dd.json", b"{\n\"check.fine\": \"\xff\"}");
    write("ee.json", b"{\"check.fine\": \"x\",}");
    write("ff.json", b"[\"x\"]");
    write("gg.json", b"{} {}");
    write("hh.json", b"{\n\n\"check.fine\": \"a\nb\"}");
    write("ii.json", b"");
    write("no_tag.json", b"{}");
    write("zz.json", "{".repeat(100_000).as_bytes());
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("kk.json", directory.path().join("kk.json")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", directory.path().join("ll.json")).unwrap();
        std::fs::create_dir(directory.path().join("mm.json")).unwrap();
    }
    let large = std::fs::File::create(directory.path().join("nn.json")).unwrap();
    large.set_len(5 << 20).unwrap();
    let faults = Locale::load("en", &source(directory.path())).err().unwrap();
    let told: Vec<String> = faults
        .iter()
        .map(|fault| {
            assert_eq!(fault.code, Code::LocaleInvalid);
            let place = fault.target.rsplit('/').next().unwrap();
            format!("{place} {}", fault.reason.as_ref().unwrap())
        })
        .collect();
    let wanted = [
        "aa.json:2:3: run.plannig locale.unknown_key_near nearest=run.planning",
        "aa.json:3:27: error.file.not_found locale.placeholder_missing name={target}",
        "aa.json:3:27: error.file.not_found locale.placeholder_unknown name={path} allowed={target}",
        "aa.json:4:17: check.fine locale.not_text found=number",
        "aa.json:5:3: 日本 locale.unknown_key",
        "aa.json:5:14: check.fine locale.twice line=4",
        "aa.json:6:3: check.fine locale.twice line=5",
        "aa.json:7:18: check.wrong locale.brace",
        "bb.json:1:19 locale.cut_off expected=, }",
        "cc.json:1:1 locale.byte_order_mark",
        "dd.json:2:16 locale.not_utf8",
        "ee.json:1:20 locale.last_comma",
        "ff.json:1:1 locale.expected expected={",
        "gg.json:1:4 locale.more_behind",
        "hh.json:3:17 locale.not_json",
        "ii.json:1:1 locale.cut_off expected={",
    ];
    for wanted in wanted {
        assert!(
            told.iter().any(|line| line == wanted),
            "{wanted}\n{told:#?}"
        );
    }
    for start in [
        "no_tag.json locale.bad_file_name",
        "zz.json:1:2 locale.expected",
    ] {
        assert!(
            told.iter().any(|line| line.starts_with(start)),
            "{start}\n{told:#?}"
        );
    }
    #[cfg(unix)]
    for start in [
        "kk.json os.too_many_links",
        "ll.json reason.not_a_regular_file",
        "mm.json ",
        "nn.json locale.too_large",
    ] {
        assert!(
            told.iter().any(|line| line.starts_with(start)),
            "{start}\n{told:#?}"
        );
    }
}

/// AT-20, ST-21, I18N-11: with a broken locale, chosen or not, nothing starts and `check` says where: exit 2.
#[test]
fn at_20_st_21_a_broken_locale_stops_start_and_check() {
    let place = place_with("xx.json", "{\n  \"check.fin\": \"x\"\n}");
    for words in [
        &["serve"][..],
        &["check"],
        &["run", "x"],
        &["audit", "verify"],
    ] {
        for (lang, near) in [
            ("en", "Did you mean check.fine?"),
            ("ja", "check.fine の誤り"),
        ] {
            let output = place
                .command(words)
                .args(["--lang", lang])
                .output()
                .unwrap();
            let told = text(&output.stdout) + &text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?} {told}");
            assert!(told.contains("xx.json:2:3: check.fin"), "{words:?} {told}");
            assert!(told.contains(near), "{words:?} {told}");
        }
    }
    let exec = place.output(&["exec", "--lang", "ja"]);
    assert_eq!(exec.status.code(), Some(125));
    // Control: without the file it is read.
    std::fs::remove_file(
        place
            .config
            .parent()
            .unwrap()
            .join("config/locales/xx.json"),
    )
    .unwrap();
    let output = place.output(&["audit", "verify"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// I18N-03: the directory lies where the configuration says, from the base file; one that was named has to be there.
#[test]
fn i18n_03_where_the_directory_lies() {
    let place = Place::new(
        "http://127.0.0.1:9",
        "sandbox: {workspaces: [ws]}\nlocalization: {directory: texts}\napplication: {language: de}",
    );
    let output = place.output(&["audit", "verify"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("texts cannot be used: it does not exist"),
        "{told}"
    );
    let directory = place.config.parent().unwrap().join("texts");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(
        directory.join("de.json"),
        r#"{"audit.empty":"audit: in {directory} steht noch nichts"}"#,
    )
    .unwrap();
    let output = place.output(&["audit", "verify"]);
    assert!(text(&output.stdout).contains("steht noch nichts"));
    // Without a configuration: the user's own directory.
    let state = tempfile::tempdir().unwrap();
    let own = state.path().join(".config/agent-mcp/locales");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::copy(directory.join("de.json"), own.join("de.json")).unwrap();
    let output = command(state.path())
        .current_dir(state.path())
        .args(["audit", "verify", "--lang", "de"])
        .output()
        .unwrap();
    let told = text(&output.stdout) + &text(&output.stderr);
    assert!(told.contains("steht noch nichts"), "{told}");
}

/// I18N-04: what is no language, and a language that nobody has, are refused, naming what there is.
#[test]
fn i18n_04_unknown_language_is_refused() {
    let state = tempfile::tempdir().unwrap();
    for (language, wanted) in [
        ("tlh", "Known: en, ja"),
        ("zh_CN", "BCP 47"),
        ("", "BCP 47"),
        ("../../etc", "BCP 47"),
    ] {
        for words in [
            &["audit", "verify"][..],
            &["init", "x"],
            &["demo"],
            &["check"],
        ] {
            let output = command(state.path())
                .current_dir(state.path())
                .args(words)
                .args(["--lang", language])
                .output()
                .unwrap();
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?} {told}");
            assert!(told.contains(wanted), "{words:?} {language}: {told}");
        }
    }
}

/// I18N-05, I18N-07: help and errors of the command line are in the language of the flag; without one in English, whatever
/// the environment says.
#[test]
fn i18n_05_i18n_07_the_command_line_speaks_it() {
    let state = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        command(state.path())
            .env("LANG", "ja_JP.UTF-8")
            .env("LC_ALL", "ja_JP.UTF-8")
            .args(words)
            .output()
            .unwrap()
    };
    assert!(text(&run(&["--help"]).stdout).contains("Usage: agent-mcp"));
    let help = text(&run(&["exec", "--help", "--lang", "ja"]).stdout);
    assert!(help.contains("使い方: agent-mcp exec"), "{help}");
    assert!(help.contains("サンドボックスのモード"), "{help}");
    for (words, english, japanese) in [
        (
            &["check", "--jsn"][..],
            "Did you mean --json?",
            "--json の誤りではありませんか",
        ),
        (
            &["chek"],
            "There is no command chek",
            "chek というコマンドはありません",
        ),
        (
            &["run"],
            "These are missing: <REQUEST>",
            "次の指定が必要です: <REQUEST>",
        ),
        (&["check", "--config"], "needs a value", "値が必要です"),
        (
            &["serve", "--transport", "sse"],
            "Choose one of: stdio, http",
            "いずれかにしてください: stdio, http",
        ),
        (
            &["audit"],
            "A command is missing",
            "コマンドを指定してください",
        ),
        (&["check", "--json", "--json"], "only once", "1 回だけ"),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let told = text(&output.stderr);
        assert!(told.contains(english), "{words:?}: {told}");
        // The flag stands first here, so that it is no value of the broken one.
        let mut with_flag = vec!["--lang=ja"];
        with_flag.splice(0..0, words[..1].iter().copied());
        with_flag.extend(&words[1..]);
        let output = run(&with_flag);
        assert_eq!(output.status.code(), Some(2), "{with_flag:?}");
        let told = text(&output.stderr);
        if !["chek", "audit"].contains(&words[0]) {
            assert!(told.contains(japanese), "{with_flag:?}: {told}");
        }
    }
    // Of `exec` every line is ours by its beginning.
    let output = run(&["exec", "--mod", "x", "--lang", "ja"]);
    assert_eq!(output.status.code(), Some(125));
    for line in text(&output.stderr).lines() {
        assert!(line.starts_with("agent-mcp: "), "{line}");
    }
}

/// I18N-07: not only the sentence, also its reason is in Japanese: no two English words in a row.
#[test]
fn i18n_07_reasons_are_japanese() {
    let place = Place::new(
        "http://127.0.0.1:9",
        "sandbox: {workspaces: [nope, /etc, a.txt], execution: {entries: [{alias: x, path: nope}]}}",
    );
    let base = place.config.parent().unwrap().to_owned();
    std::fs::write(base.join("a.txt"), "no image").unwrap();
    let image = base.join("a.txt").display().to_string();
    let check = text(&place.output(&["check", "--lang", "ja"]).stdout);
    assert!(
        check.contains("存在しません") && check.contains("システムのディレクトリです"),
        "{check}"
    );
    let report = base.join("nope/r.json").display().to_string();
    // The other rows hold words of the configuration.
    let wrong = check.lines().filter(|line| line.starts_with("ERROR"));
    let mut told = wrong.collect::<Vec<_>>().join("\n") + "\n";
    let good = Place::new("http://127.0.0.1:9", "sandbox: {workspaces: [ws]}");
    for words in [
        &["exec", "--root", "/etc", "--lang", "ja", "--", "true"][..],
        &["exec", "--root", &image, "--lang", "ja", "--", "true"],
        &[
            "exec",
            "--report",
            "json",
            "--report-file",
            &report,
            "--lang",
            "ja",
            "--",
            "true",
        ],
        &[
            "exec",
            "--mode",
            "danger-full-access",
            "--lang",
            "ja",
            "--",
            "true",
        ],
        &["serve", "--config", "/nope/agent.yaml", "--lang", "ja"],
    ] {
        let output = command(&good.state)
            .current_dir(&good.workspace)
            .args(words)
            .output()
            .unwrap();
        assert_ne!(output.status.code(), Some(0), "{words:?}");
        let error = text(&output.stderr);
        assert!(!error.is_empty(), "{words:?}");
        told.push_str(&error);
    }
    let is_word = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase());
    for line in told.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let english = is_word(pair[0]) && is_word(pair[1]);
            assert!(!english, "{pair:?}: {line}");
        }
    }
}

/// AT-18, I18N-07: ja and en reach the diagnostics, the answers over MCP, and what the model is told to answer in.
#[test]
fn at_18_i18n_07_one_choice_reaches_everything() {
    if !can_confine() {
        return;
    }
    let model = RecordedModel::start();
    for (lang, queued, answered) in [
        ("en", "The task is queued", "Answer in English."),
        ("ja", "タスクを受け付けました", "日本語で答えてください。"),
    ] {
        let place = Place::usual(&model.endpoint);
        let mut command = place.command(&["serve"]);
        command.args(["--lang", lang]);
        let mut client = Client::start(command);
        // I18N-08: the request is in the other language.
        let (answer, failed) = client.call(
            "agent_run",
            json!({"request": "create hello.txt containing the word こんにちは"}),
        );
        assert!(!failed, "{answer}");
        assert!(field(&answer, "message").contains(queued), "{answer}");
        let status = client.wait(&field(&answer, "task_id"));
        assert_eq!(field(&status, "status"), "completed", "{status}");
        assert_eq!(client.close().0, Some(0));
        let log = std::fs::read_dir(place.state.join("logs"))
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("llm."))
            .map(|entry| std::fs::read_to_string(entry.path()).unwrap())
            .collect::<String>();
        assert!(log.contains(answered), "{lang}");
        let check = text(&place.output(&["check", "--lang", lang]).stdout);
        let ready = Locale::built_in(lang).text(&Message::new("check.fine"));
        assert!(check.contains(&ready), "{check}");
    }
}
