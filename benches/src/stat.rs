//! `bowline stat`: what a server says of itself, on one screen.

mod page;

use core::fmt;
use core::time::Duration;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use bowline_runtime::exposition;
use thiserror::Error;

use self::page::{Page, PageError, shown};
use crate::cli::StatArgs;
use crate::serve_config::{ConfigError, resolve};
use crate::units::show_duration;

/// So many methods are shown, and so many cores, values of a label.
const MOST_ROWS: usize = 64;

/// Why there is nothing to show.
#[derive(Debug, Error)]
pub enum StatError {
    /// The address.
    #[error(transparent)]
    Address(#[from] ConfigError),
    /// Nobody answers there.
    #[error("cannot get the numbers of {address}: {source}; {}", cure(source))]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// What came is no text.
    #[error("{address} answers, but not with numbers: a server tells them where --metrics says")]
    NoText {
        /// Where.
        address: SocketAddr,
    },
    /// What came is not what a server tells.
    #[error("{address} does not tell a server's numbers: {source}")]
    Page {
        /// Where.
        address: SocketAddr,
        /// What is wrong.
        source: PageError,
    },
    /// What came is of somebody else.
    #[error(
        "{address} tells numbers, but not those of a server: give the address that a server's \
         --metrics names"
    )]
    NoServer {
        /// Where.
        address: SocketAddr,
    },
    /// Standard output.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

/// What may help against an answer of the system's.
fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::TimedOut => {
            "the server stands still (stopped, or without CPU time), or its host is not to be reached"
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "it ended while it answered"
        }
        _ => "a server tells them where --metrics says",
    }
}

/// Shows a server's numbers, again and again until it is interrupted, or once.
///
/// # Errors
/// [`StatError`]
pub fn run(args: &StatArgs) -> Result<(), StatError> {
    let address = resolve(&args.address)?;
    let mut output = io::stdout().lock();
    let in_place = output.is_terminal() && !args.once;
    let look = || Ok((fetch(address)?, Instant::now()));
    let wait = || {
        if !args.once {
            thread::sleep(args.every);
        }
        !args.once
    };
    show(&mut output, address, in_place, look, wait)
}

/// Shows one page after the other as they come, each in the place of the one before or below it,
/// until there is to be none any more or nobody looks. A server that has told its numbers once and
/// then doesn't is waited for: it may be started anew.
fn show(
    output: &mut impl Write,
    address: SocketAddr,
    in_place: bool,
    mut look: impl FnMut() -> Result<(Page, Instant), StatError>,
    mut wait: impl FnMut() -> bool,
) -> Result<(), StatError> {
    let clear = if in_place { "\x1b[H\x1b[2J" } else { "" };
    let mut last: Option<(Page, Instant)> = None;
    let (mut seen, mut told) = (false, String::new());
    loop {
        let looked = look();
        let screen = match &looked {
            Ok((now, at)) => {
                let before = last.as_ref().filter(|(page, _)| now.continues(page));
                let before = before.map(|(page, then)| (page, *at - *then));
                Screen { address, now, before }.to_string()
            }
            Err(error @ StatError::Unreachable { .. }) if seen => format!("waiting: {error}"),
            Err(_) => return looked.map(|_| ()),
        };
        last = looked.ok();
        seen = true;
        // What is waited for is told once.
        if last.is_some() || told != screen {
            match writeln!(output, "{clear}{screen}").and_then(|()| output.flush()) {
                // Whoever looked has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                said => said.map_err(StatError::Output)?,
            }
            told = screen;
        }
        if !wait() {
            return Ok(());
        }
    }
}

fn fetch(address: SocketAddr) -> Result<Page, StatError> {
    let text = exposition::fetch(address).map_err(|source| match source.kind() {
        // As a server says hello where it listens for requests.
        io::ErrorKind::InvalidData => StatError::NoText { address },
        _ => StatError::Unreachable { address, source },
    })?;
    read(address, &text)
}

/// What a server tells, of which it has every counter from its start.
fn read(address: SocketAddr, text: &str) -> Result<Page, StatError> {
    let page = Page::parse(text).map_err(|source| StatError::Page { address, source })?;
    page.has("bowline_copies_started_total").then_some(page).ok_or(StatError::NoServer { address })
}

/// What happened between two pages; since the start, if there is but one.
struct Screen<'a> {
    address: SocketAddr,
    now: &'a Page,
    /// The page before, and how long ago that was.
    before: Option<(&'a Page, Duration)>,
}

impl Screen<'_> {
    /// How much a counter went up.
    fn rise(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let before = self.before.map_or(0.0, |(page, _)| page.sum(name, labels));
        (self.now.sum(name, labels) - before).max(0.0)
    }

    /// A rise, by the second where there is an interval.
    fn rate(&self, rise: f64) -> String {
        match self.before {
            Some((_, ago)) => format!("{:.0}/s", rise / ago.as_secs_f64().max(1e-3)),
            None => format!("{rise:.0}"),
        }
    }

    /// The upper bound of the bucket that a share of the times is in.
    fn quantile(&self, name: &str, method: &str, share: f64) -> String {
        let mut buckets = self.now.buckets(name, method);
        if let Some((before, _)) = self.before {
            let before = before.buckets(name, method);
            buckets.iter_mut().zip(before).for_each(|(now, before)| now.1 -= before.1);
        }
        let all = buckets.last().map_or(0.0, |last| last.1);
        let wanted = all * share;
        match buckets.iter().find(|bucket| all > 0.0 && bucket.1 >= wanted) {
            Some((bound, _)) if bound.is_finite() => {
                format!("<{:?}", Duration::from_secs_f64(*bound))
            }
            Some(_) => ">10s".to_owned(),
            None => "-".to_owned(),
        }
    }

    /// The values of a label that went up, with their rates.
    fn risen(&self, family: &str, label: &str) -> String {
        let values = self.now.values_of(family, label).into_iter().take(MOST_ROWS);
        let rises = values.map(|value| (self.rise(family, &[(label, value)]), value));
        let risen = rises.filter(|(rise, _)| *rise > 0.0);
        let said: Vec<String> =
            risen.map(|(rise, value)| format!("{} {}", shown(value), self.rate(rise))).collect();
        if said.is_empty() { "none".to_owned() } else { said.join(", ") }
    }

    /// What is not on the screen though the page has it.
    fn left_out(&self, f: &mut fmt::Formatter<'_>, methods: usize, cores: usize) -> fmt::Result {
        for (what, there) in [("methods", methods), ("cores", cores)] {
            if there > MOST_ROWS {
                writeln!(f, "left out  {} more {what}", there - MOST_ROWS)?;
            }
        }
        match self.now.left_out() {
            0 => Ok(()),
            samples => {
                writeln!(f, "left out  {samples} samples: the page is too large, sums are low")
            }
        }
    }

    fn gauge(&self, name: &str) -> f64 {
        self.now.sum(name, &[])
    }
}

impl fmt::Display for Screen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replica = shown(self.now.common("replica"));
        let zone = shown(self.now.common("zone"));
        let span = match self.before {
            Some((_, ago)) => format!("in the last {}", show_duration(ago)),
            None => "since it started".to_owned(),
        };
        write!(f, "{}: replica {replica}", self.address)?;
        if !zone.is_empty() {
            write!(f, " in zone {zone}")?;
        }
        writeln!(f, ", {span}")?;
        writeln!(
            f,
            "copies    {} started, {:.0} running of {:.0} slots, {:.0} queued, {:.0} parked",
            self.rate(self.rise("bowline_copies_started_total", &[])),
            self.gauge("bowline_copies_running"),
            self.gauge("bowline_slots"),
            self.gauge("bowline_copies_queued"),
            self.gauge("bowline_copies_parked"),
        )?;
        let open = self.gauge("bowline_clients");
        writeln!(f, "open      {open:.0} connections, of clients and of peers")?;
        writeln!(
            f,
            "credit    {:.0} requests may come, {:.0} that ended wait for their clients to read",
            self.gauge("bowline_credit_left_requests"),
            self.gauge("bowline_credit_withheld_requests"),
        )?;
        writeln!(f, "ended     {}", self.risen("bowline_copies_ended_total", "end"))?;
        writeln!(f, "rejected  {}", self.risen("bowline_requests_rejected_total", "reason"))?;
        writeln!(
            f,
            "ties      {} double starts; tombstones {}; {:.0} of {:.0} cores of peers can be told",
            self.rate(self.rise("bowline_double_starts_total", &[])),
            self.risen("bowline_tombstones_total", "what"),
            self.gauge("bowline_mesh_up"),
            self.gauge("bowline_mesh_kept"),
        )?;
        // Only a service that has a store of results tells of one.
        if self.now.has("bowline_results_total") {
            writeln!(f, "results   {}", self.risen("bowline_results_total", "what"))?;
        }
        writeln!(
            f,
            "{:<20} {:>10} {:>10} {:>10} {:>12} {:>12}",
            "method", "answered", "wait p50", "wait p99", "service p50", "service p99"
        )?;
        let methods = self.now.values_of("bowline_service_seconds_count", "method");
        for method in methods.iter().take(MOST_ROWS) {
            writeln!(
                f,
                "{:<20} {:>10} {:>10} {:>10} {:>12} {:>12}",
                shown(method),
                self.rate(self.rise("bowline_calls_total", &[("method", method)])),
                self.quantile("bowline_queue_wait_seconds_bucket", method, 0.5),
                self.quantile("bowline_queue_wait_seconds_bucket", method, 0.99),
                self.quantile("bowline_service_seconds_bucket", method, 0.5),
                self.quantile("bowline_service_seconds_bucket", method, 0.99),
            )?;
        }
        let cores = self.now.values_of("bowline_loop_turns_total", "core");
        for core in cores.iter().take(MOST_ROWS) {
            let of = [("core", *core)];
            write!(
                f,
                "core {}    {} turns, {} polls, {} waits, {} stalls, {:.0} tasks",
                shown(core),
                self.rate(self.rise("bowline_loop_turns_total", &of)),
                self.rate(self.rise("bowline_loop_polls_total", &of)),
                self.rate(self.rise("bowline_loop_waits_total", &of)),
                self.rate(self.rise("bowline_loop_stalls_total", &of)),
                self.now.sum("bowline_loop_live_tasks", &of),
            )?;
            let overloaded = self.now.sum("bowline_overloaded", &of) > 0.0;
            writeln!(f, "{}", if overloaded { ", overloaded: newest first" } else { "" })?;
        }
        self.left_out(f, methods.len(), cores.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(started: u64, waited: u64) -> Page {
        let text = format!(
            "bowline_copies_started_total{{replica=\"3\",zone=\"a\"}} {started}\n\
             bowline_slots{{core=\"0\"}} 8\n\
             bowline_credit_left_requests{{core=\"0\"}} 4095\n\
             bowline_credit_withheld_requests{{core=\"0\"}} 1\n\
             bowline_service_seconds_count{{method=\"read\"}} {started}\n\
             bowline_queue_wait_seconds_bucket{{method=\"read\",le=\"0.001\"}} 100\n\
             bowline_queue_wait_seconds_bucket{{method=\"read\",le=\"0.01\"}} {waited}\n\
             bowline_queue_wait_seconds_bucket{{method=\"read\",le=\"+Inf\"}} {waited}\n# EOF\n"
        );
        Page::parse(&text).expect("a page")
    }

    /// Takes so many screens, and then nobody reads any more.
    struct Reader {
        screens: Vec<String>,
        most: usize,
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8_lossy(bytes);
            self.screens.last_mut().expect("one is begun").push_str(&text);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.screens.push(String::new());
            if self.screens.len() > self.most {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        }
    }

    /// The screens of pages that are two seconds apart.
    fn screens(in_place: bool, most: usize, mut again: impl FnMut() -> bool) -> Vec<String> {
        let mut reader = Reader { screens: vec![String::new()], most };
        let address = SocketAddr::from(([127, 0, 0, 1], 9100));
        let (begun, mut looks) = (Instant::now(), 0);
        let look = || {
            looks += 1;
            // 100 copies before the first look, which waited for less than 1 ms, then 1000 each
            // time, which waited longer.
            let started = 1000 * u64::from(looks) - 900;
            Ok((page(started, started), begun + Duration::from_secs(2) * looks))
        };
        show(&mut reader, address, in_place, look, &mut again).expect("shown");
        reader.screens.pop();
        reader.screens
    }

    #[test]
    fn each_screen_tells_what_happened_since_the_one_before() {
        let mut left = 2;
        let screens = screens(false, usize::MAX, || {
            left -= 1;
            left > 0
        });
        let [first, second] = &screens[..] else { panic!("{screens:?}") };
        assert!(first.contains("replica 3 in zone a, since it started"), "{first}");
        assert!(first.contains("4095 requests may come, 1 that ended wait"), "{first}");
        assert!(first.contains("100 started") && first.contains("of 8 slots"), "{first}");
        assert!(first.lines().any(|line| line.starts_with("read") && line.contains("<1ms")));
        assert!(
            second.contains("in the last 2.00 s") && second.contains("500/s started"),
            "{second}"
        );
        assert!(second.lines().any(|line| line.starts_with("read") && line.contains("<10ms")));
    }

    #[test]
    fn a_screen_tells_of_peers_and_of_a_store_of_results_where_there_is_one() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9100));
        let page = |results: &str| {
            let mesh = "bowline_mesh_up{core=\"0\"} 1\nbowline_mesh_up{core=\"1\"} 2\n\
                        bowline_mesh_kept{core=\"0\"} 2\nbowline_mesh_kept{core=\"1\"} 2\n";
            Page::parse(&format!("{mesh}{results}# EOF\n")).expect("a page")
        };
        let screen = |now: &Page, before: Option<&Page>| {
            let before = before.map(|page| (page, Duration::from_secs(2)));
            Screen { address, now, before }.to_string()
        };
        let none = screen(&page(""), None);
        assert!(none.contains("3 of 4 cores of peers can be told"), "{none}");
        assert!(!none.lines().any(|line| line.starts_with("results")), "{none}");
        let results = |put: u32, found: u32| {
            let of = |what, n| format!("bowline_results_total{{what=\"{what}\"}} {n}\n");
            page(&(of("put", put) + &of("found", found)))
        };
        let (before, now) = (results(4, 3), results(14, 3));
        let first = screen(&before, None);
        assert!(first.lines().any(|line| line == "results   found 3, put 4"), "{first}");
        let next = screen(&now, Some(&before));
        assert!(next.lines().any(|line| line == "results   put 5/s"), "{next}");
    }

    #[test]
    fn what_is_left_out_of_a_screen_is_told() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9100));
        let methods =
            (0..100).map(|n| format!("bowline_service_seconds_count{{method=\"m{n}\"}} 1\n"));
        let text = methods.chain(["# EOF\n".into()]).collect::<String>();
        let screen = |most| {
            let now = Page::parse_within(&text, most).expect("a page");
            Screen { address, now: &now, before: None }.to_string()
        };
        let all = screen(1 << 20);
        assert_eq!(all.lines().filter(|line| line.starts_with('m')).count(), 1 + MOST_ROWS);
        assert!(all.ends_with("\nleft out  36 more methods\n"), "{all}");
        let some = screen(10 << 10);
        assert!(some.contains("samples: the page is too large"), "{some}");
    }

    #[test]
    fn numbers_of_a_client_are_no_server() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9100));
        let read = |text: &str| read(address, text).map_err(|error| error.to_string());
        let told = read("bowline_client_calls_total 3\n# EOF\n").expect_err("a client");
        assert!(told.contains("not those of a server"), "{told}");
        assert!(read("bowline_copies_started_total{core=\"0\"} 0\n# EOF\n").is_ok());
    }

    #[test]
    fn a_server_that_is_started_anew_is_waited_for() {
        let mut reader = Reader { screens: vec![String::new()], most: usize::MAX };
        let address = SocketAddr::from(([127, 0, 0, 1], 9100));
        let begun = Instant::now();
        let gone = |kind: io::ErrorKind| StatError::Unreachable { address, source: kind.into() };
        let (refused, slow) = (io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut);
        let mut looks = [
            Ok((page(500, 500), begun)),
            Err(gone(refused)),
            Err(gone(refused)),
            Err(gone(slow)),
            Ok((page(700, 700), begun + Duration::from_secs(8))),
            // Between two looks at which it was there.
            Ok((page(600, 600), begun + Duration::from_secs(10))),
            Ok((page(650, 650), begun + Duration::from_secs(12))),
            Err(StatError::NoText { address }),
        ]
        .into_iter();
        let look = || looks.next().expect("no look after the last");
        let ended = show(&mut reader, address, false, look, || true);
        assert!(matches!(ended, Err(StatError::NoText { .. })), "that is another server");
        let told =
            ["500 started", "says", "without CPU time", "700 started", "600 started", "25/s"];
        reader.screens.pop();
        assert_eq!(reader.screens.len(), told.len(), "{:?}", reader.screens);
        for (screen, part) in reader.screens.iter().zip(told) {
            assert!(screen.contains(part), "{part} in {screen}");
            assert_eq!(screen.starts_with("waiting: "), !screen.contains("started"), "{screen}");
        }
    }

    #[test]
    fn a_server_that_was_never_there_is_not_waited_for() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9100));
        let refused = io::ErrorKind::ConnectionRefused;
        let look = || Err(StatError::Unreachable { address, source: refused.into() });
        let ended = show(&mut Vec::new(), address, false, look, || panic!("it waits"));
        assert!(ended.expect_err("nobody there").to_string().contains("--metrics"));
    }

    #[test]
    fn on_a_terminal_each_screen_takes_the_place_of_the_one_before() {
        for (in_place, clears) in [(true, true), (false, false)] {
            let screens = screens(in_place, 2, || true);
            assert!(screens.iter().all(|screen| screen.starts_with("\x1b[H\x1b[2J") == clears));
        }
    }

    #[test]
    fn it_ends_when_nobody_looks_any_more() {
        assert_eq!(screens(false, 3, || true).len(), 3);
    }
}
