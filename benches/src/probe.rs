//! What this machine's kernel can do for the runtime: `bowline probe`.

use core::fmt;

use bowline_runtime::{Answer, Error, OLDEST_KERNEL, Report, Use};
use serde::Serialize;

use crate::cli::ProbeArgs;
use crate::output::print;
use crate::run::RunEnd;

/// Why the kernel's answers could not be shown.
#[derive(Debug)]
pub struct NotShown(std::io::Error);

impl fmt::Display for NotShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answers can't be written: {}", self.0)
    }
}

/// Asks the kernel, and prints its answers. Failed is the end where Bowline can't run: what is
/// printed then says why, and what helps.
///
/// # Errors
/// Standard output takes no more.
pub fn run(args: &ProbeArgs) -> Result<RunEnd, NotShown> {
    let (text, end) = show(bowline_runtime::probe(), args.json);
    print(text.trim_end()).map_err(NotShown)?;
    Ok(end)
}

/// The answers as JSON has them.
#[derive(Serialize)]
struct Answers<'a> {
    /// Whether Bowline can run here.
    usable: bool,
    oldest_kernel: &'a str,
    kernel: Option<&'a str>,
    clock: Option<String>,
    /// Why there can be no runtime, and what helps.
    error: Option<String>,
    features: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    since: &'a str,
    works: bool,
    /// The error's name, where it doesn't.
    refused: Option<String>,
    used: &'a str,
    here: &'a str,
}

fn show(probed: Result<Report, Error>, json: bool) -> (String, RunEnd) {
    let missing = probed.as_ref().map(|report| report.missing().count());
    let end = match missing {
        Ok(0) => RunEnd::Whole,
        Ok(_) | Err(_) => RunEnd::Failed,
    };
    let text = match (&probed, json) {
        (Ok(report), false) => with_verdict(report),
        (Err(error), false) => format!("Bowline can't run here: {error}"),
        (_, true) => to_json(&probed, end == RunEnd::Whole),
    };
    (text, end)
}

fn with_verdict(report: &Report) -> String {
    let missing: Vec<&str> = report.missing().map(|feature| feature.name).collect();
    let verdict = match missing.as_slice() {
        [] => "Bowline can run here.".into(),
        names => format!(
            "Bowline can't run here: {} did not work. Run it on Linux {OLDEST_KERNEL} or later, \
             and outside of sandboxes that hold operations of io_uring back.",
            names.join(", ")
        ),
    };
    format!("{report}{verdict}")
}

fn to_json(probed: &Result<Report, Error>, usable: bool) -> String {
    let report = probed.as_ref().ok();
    let rows = report.iter().flat_map(|report| &report.features).map(|feature| Row {
        name: feature.name,
        since: feature.since,
        works: feature.answer == Answer::Works,
        refused: (feature.answer != Answer::Works).then(|| feature.answer.to_string()),
        used: match feature.used {
            Use::Required => "required",
            Use::WhereItWorks => "where it works",
            Use::OnDemand => "on demand",
            Use::Never => "never",
        },
        here: feature.in_use(),
    });
    let answers = Answers {
        usable,
        oldest_kernel: OLDEST_KERNEL,
        kernel: report.map(|report| report.release.as_str()),
        clock: report.map(|report| report.clock.to_string()),
        error: probed.as_ref().err().map(ToString::to_string),
        features: rows.collect(),
    };
    serde_json::to_string_pretty(&answers).unwrap_or_else(|error| format!("\"{error}\""))
}

#[cfg(test)]
mod tests {
    use bowline_runtime::Feature;
    use bowline_runtime::clock::Source;

    use super::*;

    fn report(answer: Answer) -> Report {
        let feature =
            Feature { name: "IT", since: "6.1", answer, used: Use::Required, instead: "nothing" };
        Report { release: "6.1.0".into(), clock: Source::Counter, features: vec![feature] }
    }

    fn parsed(text: &str) -> serde_json::Value {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn where_all_works_the_end_is_good() {
        let (text, end) = show(Ok(report(Answer::Works)), false);
        assert_eq!(end, RunEnd::Whole);
        assert!(text.contains("IT") && text.ends_with("Bowline can run here."), "{text}");
        let json = parsed(&show(Ok(report(Answer::Works)), true).0);
        assert_eq!(json["usable"], true);
        assert_eq!(json["kernel"], "6.1.0");
        assert_eq!(json["features"][0]["works"], true);
        assert_eq!(json["features"][0]["used"], "required");
    }

    #[test]
    fn where_something_required_is_held_back_it_is_named() {
        let (text, end) = show(Ok(report(Answer::Refused(22))), false);
        assert_eq!(end, RunEnd::Failed);
        assert!(text.contains("EINVAL") && text.contains("can't run here: IT"), "{text}");
        let json = parsed(&show(Ok(report(Answer::Refused(22))), true).0);
        assert_eq!(
            (&json["usable"], &json["features"][0]["refused"]),
            (&false.into(), &"EINVAL".into())
        );
    }

    #[test]
    fn where_there_is_no_io_uring_cause_and_cure_are_told_in_both_forms() {
        let (text, end) = show(Err(Error::Disabled { level: 2 }), false);
        assert_eq!(end, RunEnd::Failed);
        assert!(text.contains("sysctl kernel.io_uring_disabled=0"), "{text}");
        let json = parsed(&show(Err(Error::Missing), true).0);
        assert_eq!(json["usable"], false);
        assert!(json["error"].as_str().is_some_and(|error| error.contains("CONFIG_IO_URING")));
    }
}
