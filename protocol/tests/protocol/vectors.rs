//! The test vectors that other implementations share: bytes, and what they mean.
//!
//! A vector is three lines: `# name`, the meaning, the bytes in hexadecimal. The meaning is
//! what [`describe`] and `decode.py` print.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use bowline_protocol::{
    Attempt, CancelReason, Cause, Credit, Error, ErrorKind, Executed, Features, Frame, HEADER_LEN,
    Hello, Identity, Load, Options, PayloadOf, Reply, Request, Status, WireError, codec,
};

const LIMIT: u32 = 1 << 20;

struct Vector<'a> {
    name: &'a str,
    meaning: &'a str,
    bytes: Vec<u8>,
}

fn vectors(file: &str) -> Vec<Vector<'_>> {
    let lines: Vec<&str> = file.lines().filter(|line| !line.is_empty()).collect();
    let (vectors, []) = lines.as_chunks::<3>() else { panic!("three lines each") };
    let mut parsed = Vec::new();
    for &[name, meaning, hex] in vectors {
        let name = name.strip_prefix("# ").expect("a name");
        parsed.push(Vector { name, meaning, bytes: bytes_of(hex) });
    }
    parsed
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

const fn yes(it: bool) -> &'static str {
    if it { "yes" } else { "no" }
}

fn copy(attempt: Attempt) -> String {
    format!("client={:016x} seq={} n={}", attempt.client.0, attempt.seq.0, attempt.n)
}

fn load(load: Load) -> String {
    format!("running={} queued={} wait={}us", load.running, load.queued, load.wait.as_micros())
}

fn credit(credit: Credit) -> String {
    format!("requests={} bytes={}", credit.requests, credit.bytes)
}

fn options(options: Option<Options<'_>>) -> String {
    let mut text = String::new();
    let Some(options) = options else { return text };
    let set = options.to_set();
    if let Some(total) = options.total() {
        write!(text, " total={total}").expect("a string takes all");
    }
    if let Some(key) = set.key {
        write!(text, " key={:032x} fingerprint={:016x}", key.id, key.fingerprint)
            .expect("a string takes all");
    }
    if let Some(class) = set.class {
        write!(text, " class={}", class.0).expect("a string takes all");
    }
    if let Some(trace) = set.trace {
        write!(text, " trace={trace}").expect("a string takes all");
    }
    if let Some(label) = set.label {
        write!(text, " label={label}").expect("a string takes all");
    }
    if let Some(fresh) = set.fresh {
        let staleness = fresh.staleness.as_nanos();
        write!(text, " version={} staleness={staleness}ns", fresh.version)
            .expect("a string takes all");
    }
    text
}

fn hello(hello: &Hello) -> String {
    let who = match hello.identity {
        Identity::Client(id) => format!("client={:016x}", id.0),
        Identity::Server(at) => format!("server={}.{}", at.replica.0, at.core),
    };
    let mut text = format!("hello {who} versions={}-{}", hello.oldest, hello.newest);
    let ports: Vec<String> = hello.ports.iter().map(ToString::to_string).collect();
    write!(text, " ports={} features={:02x}", ports.join(","), hello.features.bits())
        .expect("a string takes all");
    if let Some(takes) = hello.takes {
        write!(text, " takes={}/{}", takes.frame, takes.payload).expect("a string takes all");
    }
    if let Some(methods) = &hello.methods {
        write!(text, " service={}", methods.service()).expect("a string takes all");
        for method in methods.iter() {
            let flags = u8::from(method.idempotent)
                | u8::from(method.duplicable) << 1
                | u8::from(method.keyed) << 2;
            write!(text, " {}:{}:{flags}", method.number.0, method.name)
                .expect("a string takes all");
        }
    }
    text
}

fn request(request: &Request, with: Option<Options<'_>>, payload: &[u8]) -> String {
    let cause = match request.cause {
        Cause::First => "first",
        Cause::Hedge => "hedge",
        Cause::Redispatch => "re-dispatch",
    };
    let tie = request.tie.map_or(String::new(), |tie| {
        let at = tie.twin.station;
        let window = tie.window.as_micros();
        format!(" twin={}@{}.{} window={window}us", tie.twin.n, at.replica.0, at.core)
    });
    format!(
        "request {} method={} remaining={}ns cause={cause} idempotent={}{tie}{} payload={}",
        copy(request.attempt),
        request.method.0,
        request.remaining.as_nanos(),
        yes(request.idempotent),
        options(with),
        hex_of(payload)
    )
}

fn reply(reply: &Reply, with: Option<Options<'_>>, payload: &[u8]) -> String {
    format!(
        "reply {} status={} executed={} {}{} payload={}",
        copy(reply.attempt),
        reply.status.code(),
        yes(reply.executed),
        load(reply.load),
        options(with),
        hex_of(payload)
    )
}

/// What a frame means, in one line.
fn describe(frame: &Frame<'_>) -> String {
    match frame {
        Frame::Hello(it) => hello(it),
        Frame::HelloAck(ack) => {
            let grant = ack.grant.map_or(String::new(), |grant| format!(" {}", credit(grant)));
            format!("hello-ack obeys-cancels={}{grant}", yes(ack.obeys_cancels))
        }
        Frame::Ping(ping) => format!("ping token={}", ping.token),
        Frame::Pong(ping) => format!("pong token={}", ping.token),
        Frame::Request(it, payload) => request(it, None, payload),
        Frame::RequestWith(it, options, payload) => request(it, Some(*options), payload),
        Frame::Cancel(cancel) => {
            let reason = match cancel.reason {
                CancelReason::CallerDone => "caller-done".to_string(),
                CancelReason::TwinStarted { by } => {
                    let at = by.station;
                    format!("twin-started by={}@{}.{}", by.n, at.replica.0, at.core)
                }
            };
            let lifetime = cancel.lifetime.as_nanos();
            format!("cancel {} lifetime={lifetime}ns reason={reason}", copy(cancel.attempt))
        }
        Frame::Started(started) => format!("started {}", copy(started.attempt)),
        Frame::Reply(it, payload) => reply(it, None, payload),
        Frame::ReplyWith(it, options, payload) => reply(it, Some(*options), payload),
        Frame::Ended(ended) => {
            let how = ["withdrawn", "aborted", "shed"][usize::from(ended.how.code())];
            let by = ended.by.map_or(String::new(), |n| format!(" by={n}"));
            format!("ended {} how={how}{by} {}", copy(ended.attempt), load(ended.load))
        }
        Frame::Overloaded(it) => {
            let after = it.retry_after.as_nanos();
            format!("overloaded {} after={after}ns {}", copy(it.attempt), load(it.load))
        }
        Frame::Segment(segment, payload) => format!(
            "segment {} of={} offset={} payload={}",
            copy(segment.attempt),
            match segment.of {
                PayloadOf::Request => "request",
                PayloadOf::Reply => "reply",
            },
            segment.offset,
            hex_of(payload)
        ),
        Frame::Credit(it) => format!("credit {}", credit(*it)),
        Frame::GoAway(go) => format!("go-away within={}ns", go.within.as_nanos()),
        Frame::Goodbye(goodbye, text) => {
            let reason = ["leaving", "protocol", "stranger", "silent", "credit"]
                [usize::from(goodbye.reason.code())];
            format!("goodbye reason={reason} text={}", hex_of(text))
        }
    }
}

fn describe_error(error: WireError) -> &'static str {
    match error {
        WireError::HeaderChecksum { .. } => "error header-checksum",
        WireError::Http => "error http",
        WireError::PayloadChecksum { .. } => "error payload-checksum",
        WireError::Unsummed { .. } => "error unsummed",
        WireError::Version(_) => "error version",
        WireError::Kind(_) => "error kind",
        WireError::Flags { .. } => "error flags",
        WireError::Section { .. } => "error section",
        WireError::TooLong { .. } => "error length",
        WireError::Field { .. } => "error field",
    }
}

/// What bytes mean, be they a frame or not.
fn meaning_of(bytes: &[u8]) -> String {
    match codec::decode(bytes, LIMIT) {
        Err(error) => describe_error(error).to_string(),
        Ok(None) => "wait".to_string(),
        Ok(Some((None, _))) => "skip".to_string(),
        Ok(Some((Some(frame), _))) => describe(&frame),
    }
}

#[test]
fn sound_vectors_mean_what_they_say_and_are_encoded_as_they_stand() {
    let mut kinds = [false; 15];
    for Vector { name, meaning, bytes } in vectors(include_str!("../../vectors/frames.txt")) {
        let decoded =
            codec::decode(&bytes, LIMIT).unwrap_or_else(|error| panic!("{name}: {error}"));
        let Some((Some(frame), length)) = decoded else { panic!("{name} is a frame") };
        assert_eq!(length, bytes.len(), "{name}");
        assert_eq!(describe(&frame), meaning, "{name}");
        let mut again = Vec::new();
        codec::encode(&frame, &mut again);
        assert_eq!(hex_of(&again), hex_of(&bytes), "{name}");
        kinds[usize::from(bytes[5])] = true;
    }
    assert_eq!(kinds[1..], [true; 14], "every kind of frame has a vector");
}

#[test]
fn other_vectors_are_refused_skipped_or_waited_for_as_they_say() {
    for Vector { name, meaning, bytes } in vectors(include_str!("../../vectors/others.txt")) {
        assert_eq!(meaning_of(&bytes), meaning, "{name}");
    }
}

/// Changes some bytes, and has length and checksums be right again, most of the time.
fn change(bytes: &mut [u8], mut draw: impl FnMut(usize) -> usize) {
    for _ in 0..=draw(3) {
        let at = draw(bytes.len());
        bytes[at] = if draw(2) == 0 { bytes[at] ^ 1 << draw(8) } else { draw(256) as u8 };
    }
    let Some((header, payload)) = bytes.split_first_chunk_mut::<HEADER_LEN>() else { return };
    if draw(16) > 0 {
        header[4] = codec::VERSION;
        header[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    }
    if draw(16) > 0 {
        // The flags *options* and *unsummed*.
        let options = usize::from(u16::from_le_bytes([header[54], header[55]]));
        let options = if header[6] & 0x10 == 0 { 0 } else { options };
        let unsummed = [5, 8, 12].contains(&header[5]) && header[6] & 0x20 != 0;
        let summed = if unsummed && options <= payload.len() { options } else { payload.len() };
        header[60..].copy_from_slice(&crc32fast::hash(&payload[..summed]).to_le_bytes());
    }
    if draw(64) > 0 {
        let sum = crc32fast::hash(&header[4..]);
        header[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The decoder that was written from SPEC.md, started with these arguments. Python has to be there:
/// without it, nothing is compared.
fn decoder(arguments: &[&str]) -> Option<Child> {
    let mut python = Command::new("python3");
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/decode.py")).args(arguments);
    let python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok();
    if python.is_none() {
        eprintln!("there is no python3: nothing is compared");
    }
    python
}

#[test]
fn a_captured_exchange_has_one_of_everything_and_is_read_to_its_end_without_this_crate() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/exchange.pcap.gz");
    let Some(python) = decoder(&["--capture", capture]) else { return };
    let output = python.wait_with_output().expect("a child");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "the last words: {:?}", said.lines().last());
    // "36612 > 45123: ping token=1"
    let read: Vec<&str> = said.lines().filter_map(|line| line.split(' ').nth(3)).collect();
    for row in table("\n## 3. Frames") {
        assert!(read.contains(&row[1]), "nobody says {}", row[1]);
    }
}

#[test]
fn the_decoder_that_was_written_from_the_specification_reads_changed_frames_alike() {
    let mut state = 0x0123_4567_89ab_cdef_u64;
    let mut draw = |below: usize| {
        // xorshift64*: Vigna, An experimental exploration of Marsaglia's xorshift generators.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    };
    let mut given = vectors(include_str!("../../vectors/frames.txt"));
    given.extend(vectors(include_str!("../../vectors/others.txt")));
    let (mut text, mut sound) = (String::new(), 0);
    for number in 0..20_000 {
        let mut bytes = given[draw(given.len())].bytes.clone();
        change(&mut bytes, &mut draw);
        let meaning = meaning_of(&bytes);
        // Names may have any letters, and each meaning has a line.
        if !meaning.is_ascii() || meaning.contains(|c: char| c.is_control()) {
            continue;
        }
        sound += u32::from(!meaning.starts_with("error"));
        writeln!(text, "# {number}\n{meaning}\n{}", hex_of(&bytes)).expect("a string takes all");
    }
    assert!(sound > 5_000, "{sound} are frames");
    let Some(mut python) = decoder(&["/dev/stdin"]) else { return };
    // It reads all before it writes; one that dies early says why below.
    let mut input = python.stdin.take().expect("a pipe");
    let _ = input.write_all(text.as_bytes());
    drop(input);
    let output = python.wait_with_output().expect("a child");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", said.lines().take(9).collect::<Vec<_>>().join("\n"));
}

/// The cells of a row of a table, if it is one.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(row.split('|').map(str::trim).collect())
}

fn table<'a>(after: &str) -> Vec<Vec<&'a str>> {
    let spec = include_str!("../../SPEC.md");
    let (_, section) = spec.split_once(after).unwrap_or_else(|| panic!("{after} is there"));
    let rows = section.lines().map(cells).skip_while(Option::is_none).map_while(|row| row);
    rows.skip(2).collect()
}

#[test]
fn the_specification_and_the_code_name_the_same_kinds() {
    let rows = table("\n## 3. Frames");
    assert_eq!(rows.len(), 14);
    for row in rows {
        let kind: u8 = row[0].parse().expect("a number");
        // The name that an error gives: a critical flag that no frame knows.
        let mut bytes = [0; HEADER_LEN];
        (bytes[4], bytes[5], bytes[6]) = (codec::VERSION, kind, 0x80);
        let sum = crc32fast::hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        let Err(WireError::Flags { frame, .. }) = codec::decode(&bytes, LIMIT) else {
            panic!("kind {kind} is known");
        };
        assert_eq!(frame, row[1]);
    }
}

#[test]
fn the_specification_and_the_code_have_the_same_limits() {
    let link = bowline_protocol::LinkConfig::default();
    let takes = bowline_protocol::Takes::default();
    let ours = [
        ("header", HEADER_LEN as u128),
        ("hello payload, at most", codec::MAX_HELLO.into()),
        ("goodbye payload, at most", codec::MAX_GOODBYE.into()),
        ("label, at most", bowline_protocol::options::MAX_LABEL as u128),
        ("takes.frame, if not said", takes.frame.into()),
        ("takes.payload, if not said", takes.payload.into()),
        ("hello timeout", link.hello_timeout.as_millis()),
        ("ping after", link.ping_after.as_millis()),
        ("dead after", link.dead_after.as_millis()),
    ];
    let theirs: Vec<(&str, u128)> = table("\n## 13. Limits")
        .into_iter()
        .map(|row| (row[0], row[1].parse().expect("a number")))
        .collect();
    assert_eq!(theirs, ours);
}

#[test]
fn the_specification_and_the_code_have_the_same_features() {
    let ours = [
        ("options", Features::OPTIONS),
        ("segments", Features::SEGMENTS),
        ("credit", Features::CREDIT),
        ("go-away", Features::GO_AWAY),
        ("unsummed", Features::UNSUMMED),
    ];
    let ours = ours.map(|(name, feature)| (name, u16::from(feature.bits()) << 8));
    let flag = |text: &str| u16::from_str_radix(text.trim_start_matches("0x"), 16);
    let theirs: Vec<(&str, u16)> = table("\n### 5.4 Features")
        .into_iter()
        .map(|row| (row[1], flag(row[0]).expect("a flag")))
        .collect();
    assert_eq!(theirs, ours);
}

#[test]
fn the_specification_and_the_code_name_the_same_statuses() {
    let rows = table("\n**reply** (8).");
    assert_eq!(rows.len(), 7);
    for row in rows {
        let code = row[0].trim_end_matches(" and up").parse().expect("a number");
        let status = Status::from_code(code);
        assert_eq!(format!("{status:?}").trim_end_matches("(0)"), row[1]);
        assert_eq!(status.code(), code);
    }
}

#[test]
fn the_specification_and_the_code_blame_the_same_and_ask_again_for_the_same() {
    let kinds = [
        ErrorKind::DeadlineExceeded,
        ErrorKind::NoReplica,
        ErrorKind::ConnectionLost,
        ErrorKind::Overloaded,
        ErrorKind::Shed,
        ErrorKind::NoSuchMethod,
        ErrorKind::BadRequest,
        ErrorKind::Failed,
        ErrorKind::Stale,
        ErrorKind::Invalid,
        ErrorKind::App(0),
        ErrorKind::TooManyCalls,
        ErrorKind::PayloadTooLarge,
        ErrorKind::NoRoom,
        ErrorKind::Codec(""),
        ErrorKind::Cancelled,
        ErrorKind::Closed,
    ];
    let rows = table("\n## 11. Errors");
    assert_eq!(rows.len(), kinds.len());
    for (row, kind) in rows.into_iter().zip(kinds) {
        // A codec's error is the caller's if nothing was sent, and the peer's if a reply came.
        let executed = if row[0].starts_with("Codec") { Executed::No } else { Executed::Unknown };
        let error = Error::new(kind, executed);
        let name = |text: &str| text.split('(').next().map(str::to_owned);
        assert_eq!(name(&format!("{kind:?}")), name(row[0]));
        let whose = format!("{:?}", error.whose()).to_lowercase();
        assert_eq!(Some(whose.as_str()), row[2].split(',').next());
        let again = row[4] == "yes" || row[4] == "only if idempotent";
        assert_eq!(error.is_retryable(), again, "{kind:?}");
    }
}
