//! The report as one page that needs nothing else: no script, style or picture from outside.

use core::fmt::Write;

use super::chart::{chart, class, points_json};
use super::ratios::ratios_chart;
use super::rows::rows;
use super::table::show_spread;
use super::utc::show_utc;
use super::{BASELINE, Ratios, Report, SIMULATED};
use crate::setup::Machine;
use crate::stats::{Quantile, Summary};
use crate::units::show_duration;

pub(super) const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("pointer.js");
const STRING: &str = "writing to a string cannot fail";

/// The page.
pub(super) fn html(report: &Report) -> String {
    let summaries = report.summaries();
    let ratios = report.ratios();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Bowline: {}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n",
        escape(&names(&summaries))
    );
    head(&mut page, report, &summaries, &ratios);
    warnings(&mut page, report);
    curves(&mut page, &summaries);
    if !ratios.is_empty() {
        let void = match (report.failures.is_empty(), report.all_void()) {
            (false, _) => ": VOID, a replica failed",
            (true, true) => ": VOID, the load generator was late",
            (true, false) => "",
        };
        let chart = ratios_chart(&ratios);
        writeln!(page, "<section><h2>Against {BASELINE}{void}</h2>{chart}</section>")
            .expect(STRING);
    }
    figures(&mut page, report, &summaries, &ratios);
    set_up(&mut page, report);
    page.push_str("</main>\n<script>\n");
    page.push_str(SCRIPT);
    page.push_str("</script></body></html>\n");
    page
}

fn names(summaries: &[Summary]) -> String {
    summaries.iter().map(|s| s.policy.as_str()).collect::<Vec<_>>().join(", ")
}

/// Title, and a card a policy with what a reader asks first: the tail, and its price.
fn head(page: &mut String, report: &Report, summaries: &[Summary], ratios: &[Ratios]) {
    write!(
        page,
        "<header><p class=\"eyebrow\">Bowline &middot; {}</p><h1>What each policy does to the \
         tail</h1></header>\n<section class=\"cards\">",
        show_utc(report.started)
    )
    .expect(STRING);
    for summary in summaries {
        let tail = tail_of(summary, summaries);
        let value = summary.latency().quantile(tail).map_or_else(|| "-".into(), show_duration);
        write!(
            page,
            "<div class=\"card {}\"><h3>{}</h3><p class=\"big\">{value}</p><p>{}{}</p>\
             <p class=\"price\">{}</p></div>",
            class(&summary.policy),
            escape(&summary.policy),
            tail.label(),
            against(report, summary, ratios, tail),
            price(summary)
        )
        .expect(STRING);
    }
    page.push_str("</section>\n");
    if report.machine().is_none() {
        writeln!(page, "<p class=\"note\">{}</p>", escape(SIMULATED)).expect(STRING);
    }
    verdicts(page, report);
    if let Some(statement) = report.regime_statement() {
        let kind = if ["OUTSIDE", "HARM", "not measured"].iter().any(|bad| statement.contains(bad))
        {
            "note bad"
        } else {
            "note good"
        };
        writeln!(page, "<p class=\"{kind}\">{}</p>", escape(&statement)).expect(STRING);
    }
}

fn verdicts(page: &mut String, report: &Report) {
    let verdicts = report.verdicts();
    if verdicts.is_empty() {
        return;
    }
    page.push_str("<ul class=\"verdicts\">");
    for verdict in verdicts {
        write!(page, "<li>{}</li>", escape(&verdict)).expect(STRING);
    }
    page.push_str("</ul>\n");
}

/// The furthest percentile that every policy can answer for; the median if there is none.
fn tail_of(summary: &Summary, summaries: &[Summary]) -> Quantile {
    let answered = |q: &Quantile| summaries.iter().all(|s| s.latency().quantile(*q).is_some());
    let alone = |q: &Quantile| summary.latency().quantile(*q).is_some();
    let furthest = |answers: &dyn Fn(&Quantile) -> bool| {
        Quantile::ALL.into_iter().rev().find(|quantile| answers(quantile))
    };
    furthest(&answered).or_else(|| furthest(&alone)).unwrap_or(Quantile::P50)
}

fn against(report: &Report, summary: &Summary, ratios: &[Ratios], tail: Quantile) -> String {
    if report.is_void(&summary.policy) {
        return String::new();
    }
    let spread = ratios
        .iter()
        .find(|ratios| ratios.policy == summary.policy)
        .and_then(|ratios| ratios.spreads.iter().find(|(q, _)| *q == tail)?.1);
    spread.map_or_else(String::new, |s| {
        format!(", <b>{}</b> of {BASELINE}", escape(&show_spread(&s)))
    })
}

fn price(summary: &Summary) -> String {
    let figure =
        |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.3}"));
    format!(
        "{} executions and {} sends a call",
        figure(summary.executions_per_call()),
        figure(summary.attempts_per_call())
    )
}

fn warnings(page: &mut String, report: &Report) {
    for warning in report.warnings() {
        writeln!(page, "<p class=\"note bad\">{}</p>", escape(&warning)).expect(STRING);
    }
}

fn curves(page: &mut String, summaries: &[Summary]) {
    writeln!(
        page,
        "<section><h2>Latency by percentile</h2><div class=\"plot\">{}<div id=\"readout\" hidden>\
         </div></div><p class=\"hint\">Counted from when each call fell <em>due</em>, so that \
         waiting behind a stall is not left out. Both axes are logarithmic: each further nine \
         takes the same room. Dashed: fewer than 100 samples lie beyond, take it as an anecdote.\
         </p><script type=\"application/json\" id=\"points\">{}</script></section>",
        chart(summaries),
        // Within a script element only this sequence could end it.
        points_json(summaries).replace("</", "<\\/")
    )
    .expect(STRING);
}

fn figures(page: &mut String, report: &Report, summaries: &[Summary], ratios: &[Ratios]) {
    page.push_str("<section><h2>All figures</h2><div class=\"wide\"><table><thead><tr><th></th>");
    for rounds in &report.policies {
        let name = escape(&rounds.policy);
        write!(page, "<th class=\"{}\">{name}</th>", class(&rounds.policy)).expect(STRING);
    }
    for ratios in ratios {
        write!(page, "<th>{}</th>", escape(&report.ratio_heading(ratios))).expect(STRING);
    }
    page.push_str("</tr></thead><tbody>");
    for row in rows(summaries).into_iter().filter(|row| !row.is_empty()) {
        let (label, meaning) = (escape(row.label), escape(row.meaning));
        write!(page, "<tr><th title=\"{meaning}\">{label}</th>").expect(STRING);
        for cell in &row.cells {
            write!(page, "<td>{}</td>", escape(cell)).expect(STRING);
        }
        for ratios in ratios {
            let spread = ratios.spreads.iter().find(|(q, _)| Some(*q) == row.quantile);
            let text = match spread {
                Some((_, Some(spread))) => show_spread(spread),
                Some((_, None)) => "-".into(),
                None => String::new(),
            };
            write!(page, "<td>{}</td>", escape(&text)).expect(STRING);
        }
        page.push_str("</tr>");
    }
    page.push_str(
        "</tbody></table></div><p class=\"hint\">A dash stands where fewer than 100 samples lie \
         beyond a percentile, or where there is nothing to share out. Ratios are taken within each \
         round: median (least-most). A call that failed counts with its deadline. Histograms of \
         all rounds are merged; nothing is averaged. The raw ones are in <code>latency.hlog</code>, \
         all figures in <code>results.json</code>.</p></section>\n",
    );
}

fn set_up(page: &mut String, report: &Report) {
    let mut entries = report.machine().map_or_else(Vec::new, machine_entries);
    entries.push(("seed".to_owned(), report.seed.to_string()));
    entries.extend(report.parameters.iter().cloned());
    page.push_str("<section><h2>Set-up</h2><dl>");
    for (name, value) in entries {
        write!(page, "<div><dt>{}</dt><dd>{}</dd></div>", escape(&name), escape(&value))
            .expect(STRING);
    }
    page.push_str("</dl></section>\n");
}

fn machine_entries(machine: &Machine) -> Vec<(String, String)> {
    let virtual_machine = if machine.virtual_machine { ", virtual machine" } else { "" };
    let build = if machine.optimized { "release" } else { "debug" };
    let memory = format!("{} MiB", machine.memory_mib);
    let cpu = format!("{} ({} cores usable{virtual_machine})", machine.cpu, machine.cores);
    let program = format!("bowline {}, revision {}, {build}", machine.version, machine.revision);
    vec![
        ("program".to_owned(), program),
        ("kernel".to_owned(), format!("Linux {} {}", machine.kernel, machine.arch)),
        ("CPU".to_owned(), cpu),
        ("governor".to_owned(), machine.governor.clone()),
        ("clock source".to_owned(), machine.clock_source.clone()),
        ("memory".to_owned(), memory),
    ]
}

/// Text as HTML, also within double-quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            other => html.push(other),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Origin, sample};

    #[test]
    fn the_page_needs_nothing_from_outside() {
        let page = html(&sample::report());
        for outside in ["http://", "https://", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn what_the_machine_says_of_itself_is_escaped() {
        let page = html(&sample::report());
        assert!(page.contains("A &lt;fast&gt; CPU &amp; more"));
        assert!(!page.contains("<fast>"));
    }

    #[test]
    fn the_set_up_is_on_the_page() {
        let page = html(&sample::report());
        for fact in [
            "Linux 6.1.0",
            "tsc",
            "0123456789ab",
            "2023-11-14",
            "generator on core 1",
            "performance",
        ] {
            assert!(page.contains(fact), "{fact}");
        }
    }

    #[test]
    fn a_void_run_says_so() {
        let mut report = sample::report();
        assert!(!html(&report).contains("VOID"));
        let mut debug = report.machine().expect("measured").clone();
        debug.optimized = false;
        report.origin = Origin::Measured(debug);
        assert!(html(&report).contains("VOID: this is a debug build"));
    }

    #[test]
    fn where_every_round_was_void_no_card_tells_a_ratio() {
        let mut report = sample::report();
        assert_eq!(html(&report).matches("</b> of none").count(), 2);
        sample::make_late(&mut report, "none");
        let page = html(&report);
        assert_eq!(page.matches("</b> of none").count(), 0);
        assert!(page.contains("Against none: VOID, the load generator was late"), "{page}");
    }

    #[test]
    fn a_run_that_was_interrupted_at_once_still_makes_a_page() {
        let mut report = sample::report();
        report.policies.iter_mut().for_each(|rounds| rounds.slices.clear());
        report.interrupted = true;
        let page = html(&report);
        assert!(page.contains("No call was measured") && page.contains("interrupted"));
    }
}
