//! What most commands begin with: the configuration, the language, and what is wrong with either.

use crate::cli::Common;
use crate::deployment::applied::{Snapshot, Store, Watch};
use crate::deployment::{
    Deployment, DeploymentError, Hashes, Judged, Narrowing, PassedOver, ReadConfiguration, Threads,
    look, user_directory,
};
use crate::exit;
use crate::locale::{DEFAULT_LANGUAGE, Locale, Source};
use crate::terminal::Terminal;
use policy::config::Finding;
use policy::{Fault, Localize, Message};
use std::path::Path;

/// A deployment and the language to speak about it.
pub struct Opened {
    /// The deployment.
    pub deployment: Deployment,
    /// The language.
    pub locale: Locale,
}

/// A configuration that nobody has to have seen yet, resolved: for `apply` and `show`.
pub struct Unjudged {
    /// The deployment, and what `apply` would store of it.
    pub deployment: Deployment,
    /// That.
    pub snapshot: Snapshot,
    /// What is remembered of its programs.
    pub hashes: Hashes,
    /// How a person stands to it.
    pub judged: Judged,
    /// What is said about it. Whoever wrote the configuration may have put texts beside it, so none of them is in here.
    pub locale: Locale,
    /// The language with those texts, for when it is applied.
    own_locale: Locale,
}

/// Resolves the configuration that the flags name, or the first one found, whoever wrote it.
///
/// # Errors
/// Everything wrong was printed; the exit code is returned.
pub fn open_unjudged(common: &Common, narrowing: &Narrowing) -> Result<Unjudged, u8> {
    let lang = common.lang.as_deref();
    let read = match look(common.config.as_deref()) {
        Ok(read) => read,
        Err(problem) => return Err(report(&flag_locale(lang)?, &problem)),
    };
    let own_locale = configured_locale(lang, &read)?;
    let locale = load_flag_locale(Some(own_locale.language()))
        .unwrap_or_else(|_| Locale::built_in(own_locale.language()));
    let judged = read.judged;
    let mut hashes = Hashes::of(&read.file, Threads::All);
    let mut deployment = match Deployment::with_hashes(read, narrowing, &mut hashes) {
        Ok(deployment) => deployment,
        Err(problem) => return Err(report(&locale, &problem)),
    };
    match deployment.snapshot.take() {
        Some(snapshot) => Ok(Unjudged {
            deployment,
            snapshot,
            hashes,
            judged,
            locale,
            own_locale,
        }),
        // Only presets have none.
        None => Err(exit::USAGE),
    }
}

/// What `serve` and `run` work under: the same, and only if it is exactly what was applied (ST-24).
///
/// # Errors
/// Everything that differs was printed; the exit code is returned.
pub fn open_applied(common: &Common, narrowing: &Narrowing) -> Result<(Opened, Watch), u8> {
    let opened = open_unjudged(common, narrowing)?;
    let (locale, snapshot) = (&opened.locale, opened.snapshot);
    let read = Store::of_user().and_then(|store| Ok((store.read(&snapshot.config)?, store)));
    let (applied, store) = read.map_err(|fault| {
        Terminal::new(locale).fault(&fault);
        exit::of(fault.code)
    })?;
    match snapshot.demand(applied.as_ref()) {
        Ok(()) => {
            if let Some(problem) = opened.hashes.problem() {
                Terminal::new(locale).fault(problem);
            }
            opened.hashes.remember_or_hash_again(&snapshot.config);
            let (deployment, locale) = (opened.deployment, opened.own_locale);
            let entries = deployment.policy.entries().to_vec();
            let watch = Watch::new(snapshot, entries, store);
            Ok((Opened { deployment, locale }, watch))
        }
        Err(refusals) => Err(report(locale, &DeploymentError::Refusals(refusals))),
    }
}

/// The language of the flag, without a configuration; files lie in `locales` of the user's configuration directory.
///
/// # Errors
/// An unknown language; printed.
pub fn flag_locale(lang: Option<&str>) -> Result<Locale, u8> {
    load_flag_locale(lang).map_err(|faults| printed(lang, &faults))
}

/// The same for help and for a command line that cannot be read: they are there in any case.
pub fn flag_locale_or_built_in(lang: Option<&str>) -> Locale {
    load_flag_locale(lang).unwrap_or_else(|_| Locale::built_in(lang.unwrap_or(DEFAULT_LANGUAGE)))
}

/// The same, without printing what is wrong.
///
/// # Errors
/// An unknown language.
pub fn load_flag_locale(lang: Option<&str>) -> Result<Locale, Vec<Fault>> {
    let source = Source {
        directory: user_directory().map(|directory| directory.join("locales")),
        ..Source::default()
    };
    Locale::load(lang.unwrap_or(DEFAULT_LANGUAGE), &source)
}

/// The language by I18N-06, with the files of the configured directory.
///
/// # Errors
/// `locale.invalid`; printed.
pub fn configured_locale(lang: Option<&str>, read: &ReadConfiguration) -> Result<Locale, u8> {
    let language = lang.unwrap_or(&read.loaded.config.application.language);
    load_configured_locale(lang, read).map_err(|faults| printed(Some(language), &faults))
}

/// The same, without printing what is wrong.
///
/// # Errors
/// `locale.invalid`.
pub fn load_configured_locale(
    lang: Option<&str>,
    read: &ReadConfiguration,
) -> Result<Locale, Vec<Fault>> {
    let config = &read.loaded.config;
    let base = read.file.parent().unwrap_or(Path::new(""));
    let source = Source {
        directory: Some(base.join(&config.localization.directory)),
        named: config.place("localization.directory").is_some(),
        fallback: Some(config.localization.fallback.clone()),
    };
    Locale::load(lang.unwrap_or(&config.application.language), &source)
}

/// What is wrong with the locales is said in what is compiled in.
fn printed(language: Option<&str>, faults: &[Fault]) -> u8 {
    let compiled_in = Locale::built_in(language.unwrap_or(DEFAULT_LANGUAGE));
    let terminal = Terminal::new(&compiled_in);
    faults.iter().for_each(|fault| terminal.fault(fault));
    exit::USAGE
}

/// Prints why there is no deployment and returns the exit code.
pub fn report(locale: &Locale, problem: &DeploymentError) -> u8 {
    say(&Terminal::new(locale), problem)
}

/// The same on a terminal of the caller's.
pub fn say(terminal: &Terminal<'_>, problem: &DeploymentError) -> u8 {
    match problem {
        DeploymentError::NoConfiguration { discovery } => {
            for (path, why) in &discovery.passed {
                terminal.warn(&passed_over(path, *why));
            }
            let looked: Vec<String> = discovery
                .looked
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            terminal.warn(&Message::new("cli.no_configuration").with("looked", looked.join(", ")));
            exit::USAGE
        }
        DeploymentError::Untrusted { file } => {
            terminal.warn(&Message::new("cli.untrusted").with("file", file.display()));
            exit::USAGE
        }
        DeploymentError::Unreadable(fault) => {
            terminal.fault(fault);
            exit::USAGE
        }
        DeploymentError::Findings(findings) => {
            findings
                .iter()
                .for_each(|finding| terminal.error(&finding_line(terminal.texts(), finding)));
            exit::USAGE
        }
        DeploymentError::Faults(faults) => {
            faults.iter().for_each(|fault| terminal.fault(fault));
            exit::USAGE
        }
        DeploymentError::Refusals(refusals) => {
            refusals
                .iter()
                .for_each(|refusal| terminal.refusal(refusal));
            refusals
                .first()
                .map_or(exit::USAGE, |refusal| exit::of(refusal.code))
        }
    }
}

/// A configuration that is there and not used, and why.
pub fn passed_over(path: &Path, why: PassedOver) -> Message {
    let (id, owner) = match why {
        PassedOver::Later => ("check.config_later", None),
        PassedOver::ForeignOwner { owner } => ("check.config_foreign", Some(owner)),
        PassedOver::SharedDirectory => ("check.config_shared", None),
    };
    let message = Message::new(id).with("path", path.display());
    owner
        .into_iter()
        .fold(message, |message, owner| message.with("owner", owner))
}

/// `file:line:column: key: text`, as editors understand it.
pub fn finding_line(locale: &dyn Localize, finding: &Finding) -> String {
    let key = if finding.key.is_empty() {
        String::new()
    } else {
        format!("{}: ", finding.key)
    };
    format!(
        "{}:{}:{}: {key}{}",
        finding.file,
        finding.line,
        finding.column,
        locale.text(&finding.message)
    )
}
