//! The meaning of the `ollama` section (OLL-03 to OLL-05, X-OLL, X-MODEL).

use super::defaults;
use super::finding::FindingCode as Code;
use super::meaning::{decimal, number, optional, or, required, section};
use super::node::Mark;
use super::report::{Details, Report};
use super::scalar::{At, Written};
use super::settings as plain;
use super::shapes::is_local;
use super::values::Extra;
use super::written as w;
use serde_json::{Map, Value};
use url::Url;

pub(super) fn ollama(
    written: w::Ollama,
    mark: Mark,
    report: &mut Report<'_>,
) -> Option<plain::Ollama> {
    let w::Ollama {
        endpoint,
        model,
        think,
        keep_alive,
        options,
        extra_options,
    } = written;
    if let Some(at) = &endpoint
        && !is_local(&at.value.0)
    {
        let details = Details::value(at.value.0.as_str());
        report.add(Code::RemoteEndpoint, at.mark, "ollama.endpoint", details);
    }
    if let Some(at) = &model
        && let Some((_, tag)) = at.value.0.rsplit_once(':')
        && (tag == "cloud" || tag.ends_with("-cloud"))
    {
        let details = Details::value(at.value.0.as_str());
        report.add(Code::CloudModel, at.mark, "ollama.model", details);
    }
    // A section that is no section has no keys to miss.
    let model = match report.says("ollama") {
        true => model.map(|at| at.value),
        false => required(model, "ollama.model", mark, report),
    };
    let options = self::options(section(options), report);
    let extra_options = extra(extra_options, report);
    Some(plain::Ollama {
        endpoint: match endpoint {
            Some(at) => at.value.0,
            None => Url::parse(defaults::ENDPOINT).ok()?,
        },
        model: model?.0,
        think: or(think, plain::Think::Switch(false)),
        keep_alive: or(
            keep_alive,
            plain::KeepAlive::Duration(defaults::KEEP_ALIVE.to_owned()),
        ),
        options,
        extra_options,
    })
}

fn options(written: w::Options, report: &mut Report<'_>) -> plain::OllamaOptions {
    let w::Options {
        num_ctx,
        num_predict,
        num_batch,
        num_gpu,
        main_gpu,
        use_mmap,
        num_thread,
        draft_num_predict,
        num_keep,
        seed,
        top_k,
        top_p,
        min_p,
        typical_p,
        repeat_last_n,
        temperature,
        repeat_penalty,
        presence_penalty,
        frequency_penalty,
        stop,
        // Warned about while they were read; Ollama would ignore them.
        tfs_z: _,
        mirostat: _,
        mirostat_tau: _,
        mirostat_eta: _,
        penalize_newline: _,
        low_vram: _,
        use_mlock: _,
    } = written;
    if let Some(at) = &num_predict
        && at.value.0 == 0
    {
        let details = Details::allowed("-1, 1..16777216").with_value("0");
        report.add(
            Code::OutOfRange,
            at.mark,
            "ollama.options.num_predict",
            details,
        );
    }
    plain::OllamaOptions {
        num_ctx: number(num_ctx, defaults::NUM_CTX),
        num_predict: number(num_predict, defaults::NUM_PREDICT),
        num_batch: optional(num_batch),
        num_gpu: optional(num_gpu),
        main_gpu: optional(main_gpu),
        use_mmap: use_mmap.map(|at| at.value),
        num_thread: optional(num_thread),
        draft_num_predict: optional(draft_num_predict),
        num_keep: optional(num_keep),
        seed: optional(seed),
        top_k: optional(top_k),
        top_p: decimal(top_p),
        min_p: decimal(min_p),
        typical_p: decimal(typical_p),
        repeat_last_n: optional(repeat_last_n),
        temperature: decimal(temperature),
        repeat_penalty: decimal(repeat_penalty),
        presence_penalty: decimal(presence_penalty),
        frequency_penalty: decimal(frequency_penalty),
        stop: stop.map(|at| at.value.map(|text| text)),
    }
}

/// OLL-05: the known option wins over an extra one of the same name, set or not.
fn extra(written: Option<At<Extra>>, report: &mut Report<'_>) -> Map<String, Value> {
    let Some(At {
        value: Extra(mut extra),
        mark,
    }) = written
    else {
        return Map::new();
    };
    let mut known = Vec::new();
    w::Options::keys("", &mut known);
    for name in known {
        if extra.remove(&name).is_some() {
            let key = format!("ollama.extra_options.{name}");
            let mark = report.mark_of(&key).unwrap_or(mark);
            let details = Details::default().with_nearest(Some(format!("ollama.options.{name}")));
            report.add(Code::ExtraOptionIgnored, mark, &key, details);
        }
    }
    extra
}
