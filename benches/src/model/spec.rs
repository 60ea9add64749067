//! Models as one writes them: `log-normal:5ms,0.5`, `hdr:latency.hlog,tag=none`.

use core::fmt;
use core::time::Duration;
use std::path::PathBuf;

use bowline_tests::kernel::span::{Nanos, Span};

use crate::units::{parse_duration, parse_percent, show_duration};

/// Longer times are cut to this, or refused.
const LONGEST: Duration = Duration::from_secs(60);
/// A trace's windows, if nothing else is said: short beside a stall.
const WINDOW: Duration = Duration::from_millis(10);

/// What a user asked for; files are not yet read.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelSpec {
    /// A distribution with its parameters.
    Known(Span),
    /// The values of an HdrHistogram log.
    Histogram {
        /// The file.
        path: PathBuf,
        /// Only intervals with this tag.
        tag: Option<String>,
        /// What a value of 1 means.
        unit: Duration,
    },
    /// The records of a CSV file.
    Trace {
        /// The file.
        path: PathBuf,
        /// What happened within so long happened together.
        window: Duration,
    },
}

/// Reads a model.
///
/// # Errors
/// What is wrong with it, with an example of what is right.
pub fn parse_model(text: &str) -> Result<ModelSpec, String> {
    match text.split_once(':') {
        Some(("hdr", rest)) => histogram(rest),
        Some(("trace", rest)) => trace(rest),
        _ => parse_span(text).map(ModelSpec::Known),
    }
}

/// Reads a distribution that has a name.
///
/// # Errors
/// What is wrong with it, with an example of what is right.
pub fn parse_span(text: &str) -> Result<Span, String> {
    let Some((kind, rest)) = text.split_once(':') else {
        return time(text).map(Span::Fixed);
    };
    let words: Vec<&str> = rest.split(',').map(str::trim).collect();
    match (kind, words.as_slice()) {
        ("fixed", [at]) => Ok(Span::Fixed(time(at)?)),
        ("exp", [mean]) => Ok(Span::Exponential { mean: some_time(mean)? }),
        ("log-normal", [mean, sigma]) => log_normal(some_time(mean)?, sigma),
        ("pareto", [least, alpha]) => pareto(least, alpha, LONGEST),
        ("pareto", [least, alpha, cap]) => {
            pareto(least, alpha, Duration::from_nanos(some_time(cap)?))
        }
        ("bimodal", [short, long, share]) => bimodal(short, long, share),
        ("fixed", _) => Err("write fixed:TIME, for example fixed:5ms".into()),
        ("exp", _) => Err("write exp:MEAN, for example exp:5ms".into()),
        ("log-normal", _) => Err("write log-normal:MEAN,SIGMA, such as log-normal:5ms,0.5".into()),
        ("pareto", _) => Err("write pareto:LEAST,ALPHA[,CAP], for example pareto:2ms,1.5".into()),
        ("bimodal", _) => {
            Err("write bimodal:SHORT,LONG,SHARE, for example bimodal:1ms,20ms,5%".into())
        }
        (other, _) => Err(format!(
            "unknown model {other:?}; there are fixed, exp, log-normal, pareto, bimodal and, for \
             service times, hdr and trace"
        )),
    }
}

fn time(text: &str) -> Result<Nanos, String> {
    let time = parse_duration(text).map_err(|why| format!("{text:?}: {why}"))?;
    if time > LONGEST {
        return Err(format!("{text:?}: at most {}", show_duration(LONGEST)));
    }
    Ok(time.as_nanos() as Nanos)
}

fn some_time(text: &str) -> Result<Nanos, String> {
    match time(text)? {
        0 => Err(format!("{text:?}: must be above zero")),
        nanos => Ok(nanos),
    }
}

fn number(text: &str, what: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{what} {text:?} is not a number"))?;
    let held = number > least && number <= most;
    held.then_some(number).ok_or_else(|| format!("{what} must lie above {least}, up to {most}"))
}

fn log_normal(mean: Nanos, sigma: &str) -> Result<Span, String> {
    let sigma = number(sigma, "SIGMA", 0.0, 3.0)?;
    let median = (mean as f64 * libm::exp(-0.5 * sigma * sigma)).max(1.0) as Nanos;
    Ok(Span::LogNormal { median, sigma })
}

fn pareto(least: &str, alpha: &str, cap: Duration) -> Result<Span, String> {
    let alpha = number(alpha, "ALPHA", 0.5, 20.0)?;
    let (least, cap) = (some_time(least)?, cap.as_nanos() as Nanos);
    if cap <= least {
        return Err("CAP must be longer than LEAST".into());
    }
    Ok(Span::Pareto { least, alpha, cap })
}

fn bimodal(short: &str, long: &str, share: &str) -> Result<Span, String> {
    let share = parse_percent(share).map_err(|why| format!("{share:?}: {why}"))?;
    let long_permille = (share * 1000.0).round();
    if (share * 1000.0 - long_permille).abs() > 1e-6 {
        return Err("SHARE goes in steps of 0.1%".into());
    }
    let (short, long) = (time(short)?, some_time(long)?);
    Ok(Span::Bimodal { short, long, long_permille: long_permille as u64 })
}

/// Parts what follows a path, `,name=value`, from it: a path may have commas of its own.
fn options<'a>(text: &'a str, names: &[&str]) -> (PathBuf, Vec<(&'a str, &'a str)>) {
    let (mut path, mut found) = (text, Vec::new());
    while let Some((rest, option)) = path.rsplit_once(',')
        && let Some((name, value)) = option.split_once('=')
        && names.contains(&name)
    {
        found.push((name, value));
        path = rest;
    }
    (PathBuf::from(path), found)
}

fn histogram(text: &str) -> Result<ModelSpec, String> {
    let (path, found) = options(text, &["tag", "unit"]);
    let (mut tag, mut unit) = (None, Duration::from_nanos(1));
    for (name, value) in found {
        match name {
            "tag" => tag = Some(value.to_owned()),
            _ => {
                let nanos = unit_of(value)
                    .ok_or_else(|| format!("unknown unit {value:?}; there are ns, us, ms and s"))?;
                unit = Duration::from_nanos(nanos);
            }
        }
    }
    if path.as_os_str().is_empty() {
        return Err("write hdr:FILE[,tag=NAME][,unit=us]".into());
    }
    Ok(ModelSpec::Histogram { path, tag, unit })
}

fn trace(text: &str) -> Result<ModelSpec, String> {
    let (path, found) = options(text, &["window"]);
    let mut window = WINDOW;
    for (_, value) in found {
        window = parse_duration(value).map_err(|why| format!("window {value:?}: {why}"))?;
    }
    if window.is_zero() {
        return Err("window must be above zero".into());
    }
    if path.as_os_str().is_empty() {
        return Err("write trace:FILE[,window=10ms]".into());
    }
    Ok(ModelSpec::Trace { path, window })
}

/// Nanoseconds in a unit.
pub(super) fn unit_of(name: &str) -> Option<u64> {
    match name {
        "ns" => Some(1),
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        _ => None,
    }
}

/// For readers of reports: what was asked for.
impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelSpec::Known(span) => f.write_str(&show_span(span)),
            ModelSpec::Histogram { path, tag, .. } => {
                let tag = tag.as_ref().map_or_else(String::new, |tag| format!(", tag {tag}"));
                write!(f, "as in {}{tag}", path.display())
            }
            ModelSpec::Trace { path, window } => {
                write!(f, "as in {}, windows of {}", path.display(), show_duration(*window))
            }
        }
    }
}

/// A distribution for readers.
pub fn show_span(span: &Span) -> String {
    let show = |nanos: &Nanos| show_duration(Duration::from_nanos(*nanos));
    match span {
        Span::Fixed(at) => format!("fixed, {}", show(at)),
        Span::Uniform(low, high) => format!("uniform, {} to {}", show(low), show(high)),
        Span::Exponential { mean } => format!("exponential, mean {}", show(mean)),
        Span::LogNormal { sigma, .. } => {
            format!("log-normal, mean {}, sigma {sigma}", show(&(span.mean().round() as Nanos)))
        }
        Span::Pareto { least, alpha, cap } => {
            format!("Pareto, least {}, alpha {alpha}, cut at {}", show(least), show(cap))
        }
        Span::Bimodal { short, long, long_permille } => {
            let percent = *long_permille as f64 / 10.0;
            format!("{}, and {} in {percent} % of the calls", show(short), show(long))
        }
        Span::Empirical(values) => format!("{values:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &str) -> Span {
        match parse_model(text) {
            Ok(ModelSpec::Known(span)) => span,
            other => panic!("{text} gave {other:?}"),
        }
    }

    #[test]
    fn every_model_is_read_as_it_is_written() {
        assert_eq!(known("5ms"), Span::Fixed(5_000_000));
        assert_eq!(known("fixed:0"), Span::Fixed(0));
        assert_eq!(known("exp:250us"), Span::Exponential { mean: 250_000 });
        assert_eq!(
            known("pareto:1ms,1.5"),
            Span::Pareto { least: 1_000_000, alpha: 1.5, cap: 60_000_000_000 }
        );
        assert_eq!(
            known("bimodal:1ms, 20ms, 2.5%"),
            Span::Bimodal { short: 1_000_000, long: 20_000_000, long_permille: 25 }
        );
        let log_normal = known("log-normal:5ms,0.5");
        assert!((log_normal.mean() / 5e6 - 1.0).abs() < 1e-6, "{log_normal:?}");
        assert_eq!(
            parse_model("hdr:a,b/latency.hlog,tag=none,unit=us"),
            Ok(ModelSpec::Histogram {
                path: "a,b/latency.hlog".into(),
                tag: Some("none".into()),
                unit: Duration::from_micros(1)
            })
        );
        assert_eq!(
            parse_model("trace:reads.csv"),
            Ok(ModelSpec::Trace { path: "reads.csv".into(), window: WINDOW })
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_what_is_right() {
        for (text, told) in [
            ("frantic:5ms", "there are fixed, exp"),
            ("exp", "not a number"),
            ("exp:", "not a number"),
            ("exp:5", "no unit; write for example 5ms"),
            ("exp:0", "above zero"),
            ("exp:1ms,2ms", "exp:MEAN"),
            ("log-normal:5ms", "log-normal:5ms,0.5"),
            ("log-normal:5ms,9", "SIGMA must lie above 0, up to 3"),
            ("pareto:2ms,0.1", "ALPHA must lie above 0.5"),
            ("pareto:2ms,1.5,1ms", "CAP must be longer"),
            ("bimodal:1ms,20ms,0.01%", "steps of 0.1%"),
            ("bimodal:1ms,20ms,101%", "more than 100 %"),
            ("fixed:2h", "at most 60.0 s"),
            ("hdr:", "hdr:FILE"),
            ("hdr:x,unit=parsec", "unknown unit \"parsec\""),
            ("trace:x,window=0", "above zero"),
            ("trace:,window=1ms", "trace:FILE"),
        ] {
            let said = parse_model(text).expect_err(text);
            assert!(said.contains(told), "{text}: {said}");
        }
    }
}
