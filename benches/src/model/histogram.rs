//! Service times from an HdrHistogram log: that of a report's folder, or of any other tool.

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use bowline_tests::kernel::empirical::Empirical;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use super::{ModelError, lines};

/// Reads the values of all intervals with this tag, or of all that have none.
pub(super) fn read(
    path: &Path,
    tag: Option<&str>,
    unit: Duration,
) -> Result<Empirical, ModelError> {
    let mut counts = BTreeMap::new();
    let mut tags = BTreeMap::new();
    let mut deserializer = Deserializer::new();
    lines(path, |number, line| {
        let Some((found, encoded)) = interval(path, number, line)? else { return Ok(()) };
        *tags.entry(found.clone()).or_insert(0) += 1;
        if found.as_deref() == tag {
            let histogram = decode(path, number, &encoded, &mut deserializer)?;
            for step in histogram.iter_recorded() {
                let nanos = u128::from(step.value_iterated_to()) * unit.as_nanos();
                let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
                *counts.entry(nanos).or_insert(0) += step.count_since_last_iteration();
            }
        }
        Ok(())
    })?;
    Empirical::of(counts).ok_or_else(|| ModelError::whole(path, nothing(tag, &tags)))
}

/// Why there are no values, and how there would be some.
fn nothing(tag: Option<&str>, tags: &BTreeMap<Option<String>, u32>) -> String {
    let named: Vec<&str> = tags.keys().flatten().map(String::as_str).collect();
    let cure = match (named.is_empty(), tags.contains_key(&None)) {
        (true, false) => "is it an HdrHistogram log?".to_owned(),
        (true, true) => "its intervals have no tag: leave tag=NAME out".to_owned(),
        (false, _) => format!("choose one by ,tag=NAME; there are {}", named.join(", ")),
    };
    match tag {
        Some(tag) => format!("has no values with tag {tag:?}; {cure}"),
        None => format!("has no values without a tag; {cure}"),
    }
}

/// The tag and the encoded histogram of a line; None for a comment or the legend.
fn interval(
    path: &Path,
    number: usize,
    line: &str,
) -> Result<Option<(Option<String>, String)>, ModelError> {
    // The reader wants whole lines.
    let line = format!("{line}\n");
    match IntervalLogIterator::new(line.as_bytes()).next() {
        Some(Ok(LogEntry::Interval(interval))) => {
            let tag = interval.tag().map(|tag| tag.as_str().to_owned());
            Ok(Some((tag, interval.encoded_histogram().to_owned())))
        }
        Some(Ok(_)) | None => Ok(None),
        Some(Err(_)) => Err(ModelError::line(
            path,
            number,
            "is no line of an HdrHistogram log ([Tag=NAME,]START,LENGTH,MAX,HISTOGRAM); for a CSV \
             file write trace:FILE",
        )),
    }
}

fn decode(
    path: &Path,
    number: usize,
    encoded: &str,
    deserializer: &mut Deserializer,
) -> Result<Histogram<u64>, ModelError> {
    let refused = |why: String| {
        ModelError::line(path, number, format!("its histogram cannot be decoded: {why}"))
    };
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|error| refused(error.to_string()))?;
    deserializer.deserialize(&mut bytes.as_slice()).map_err(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use hdrhistogram::serialization::V2DeflateSerializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

    use crate::model::{Model, parse_model};

    /// A log as HdrHistogram's tools write it: an interval of each of these values, ten times.
    fn log(intervals: &[(Option<&str>, u64)]) -> Vec<u8> {
        let (mut text, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
        let mut builder = IntervalLogWriterBuilder::new();
        builder.add_comment("made for a test").with_start_time(SystemTime::UNIX_EPOCH);
        let mut writer = builder.begin_log_with(&mut text, &mut serializer).expect("a log");
        for (tag, value) in intervals {
            let mut histogram = hdrhistogram::Histogram::<u64>::new(3).expect("digits");
            histogram.record_n(*value, 10).expect("in range");
            let (at, lasts) = (Default::default(), core::time::Duration::from_secs(1));
            writer.write_histogram(&histogram, at, lasts, tag.and_then(Tag::new)).expect("written");
        }
        drop(writer);
        text
    }

    fn load(text: &[u8], options: &str) -> Result<(f64, u64), String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("latency.hlog");
        fs::write(&path, text).expect("writable");
        let spec = parse_model(&format!("hdr:{}{options}", path.display())).expect("a spec");
        match spec.load().map_err(|error| error.to_string())? {
            Model::Span(bowline_tests::kernel::span::Span::Empirical(values)) => {
                Ok((values.mean(), values.count()))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_values_of_all_intervals_with_the_tag_are_read() {
        let plain = log(&[(None, 1000), (None, 2000)]);
        let (mean, count) = load(&plain, "").expect("values");
        assert!((mean - 1500.0).abs() < 2.0 && count == 20, "{mean}, {count}");
        let (mean, _) = load(&plain, ",unit=us").expect("values");
        assert!((mean / 1.5e6 - 1.0).abs() < 0.001, "{mean}");
        let tagged = log(&[(Some("none"), 1000), (Some("none-lag"), 5), (Some("tied"), 3000)]);
        let (mean, count) = load(&tagged, ",tag=tied").expect("values");
        assert!((mean - 3000.0).abs() < 4.0 && count == 10, "{mean}, {count}");
    }

    #[test]
    fn what_is_wrong_is_told_with_the_line_and_the_cure() {
        let tagged = log(&[(Some("none"), 1000), (Some("tied"), 3000)]);
        let said = load(&tagged, "").expect_err("tags");
        assert!(said.contains("choose one by ,tag=NAME; there are none, tied"), "{said}");
        let said = load(&tagged, ",tag=hedged").expect_err("no such tag");
        assert!(said.contains("\"hedged\"") && said.contains("none, tied"), "{said}");
        let said = load(&log(&[(None, 1)]), ",tag=tied").expect_err("no tags");
        assert!(said.contains("leave tag=NAME out"), "{said}");
        let said = load(b"#nothing\n", "").expect_err("empty");
        assert!(said.contains("is it an HdrHistogram log?"), "{said}");
        let said = load(b"#a\nat_us,replica,took_us\n", "").expect_err("CSV");
        assert!(said.contains("latency.hlog:2:") && said.contains("trace:FILE"), "{said}");
        let said = load(b"0.0,1.0,2.0,!!!\n", "").expect_err("no base64");
        assert!(said.contains("latency.hlog:1: its histogram cannot be decoded"), "{said}");
        let said = load(b"0.0,1.0,2.0,AAAAAAAA\n", "").expect_err("no histogram");
        assert!(said.contains("cannot be decoded"), "{said}");
    }
}
