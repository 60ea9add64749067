use std::time::Duration;

use bowline_protocol::{Label, Status, TrafficClass};

use super::*;
use crate::core::{
    AutoOff, Delay, EjectConfig, Limits, PickRule, Policy, RetryConfig, Stagger, Verdict,
};

const REPLICA: &str = "[[replica]]\nid = 1\naddress = \"127.0.0.1:7000\"\n";

fn read(text: &str) -> Config {
    Config::from_toml(&format!("{REPLICA}{text}")).unwrap()
}

fn error(text: &str) -> String {
    Config::from_toml(&format!("{REPLICA}{text}")).unwrap_err().to_string()
}

/// The settings that a table has, by what is said to one that it has not.
fn settings(text: &str) -> Vec<String> {
    let error = Config::from_toml(text).unwrap_err().to_string();
    let (_, expected) = error.split_once("expected").expect("one unknown field");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn all_that_a_file_may_say_stands_in_its_documentation() {
    let shown = include_str!("mod.rs").lines().filter(|line| line.starts_with("//!"));
    let shown: Vec<&str> = shown.collect();
    let method = format!("{REPLICA}[[method]]\nid = 1\n");
    let within = |table: &str| format!("{method}{table} = {{ nothing = 1 }}\n");
    let tables = [
        "nothing = 1".to_owned(),
        format!("{REPLICA}nothing = 1"),
        format!("{REPLICA}[budget]\nnothing = 1"),
        format!("{method}nothing = 1"),
        format!("{REPLICA}[eject]\nnothing = 1"),
        format!("{method}hedge = {{ auto_off = {{ nothing = 1 }} }}"),
        format!("{method}shadow = [{{ nothing = 1 }}]"),
    ];
    let inner = ["retry", "replies", "tie", "hedge", "canary"].map(within);
    for setting in tables.iter().chain(&inner).flat_map(|text| settings(text)) {
        let named = [format!("{setting} ="), format!("[[{setting}]]"), format!("[{setting}]")];
        let named = |line: &&str| {
            let is = |of: &String| line.contains(of.as_str());
            named.iter().any(is) || line.contains(&format!(".{setting}]"))
        };
        assert!(shown.iter().any(named), "{setting} is not shown");
    }
}

#[test]
fn a_method_is_read_with_its_policy() {
    let config = read(
        "[[method]]\nid = 3\nidempotent = true\ndeadline = \"1.5ms\"\n\
         hedge = { delay = \"200us\", max_hedges = 2 }\n",
    );
    let (id, of) = &config.methods[0];
    let found = (*id, of.idempotent, of.deadline, of.class);
    assert_eq!(found, (Method(3), true, Duration::from_micros(1500), None));
    let Policy::Hedged(hedge) = of.policy else { panic!("{:?}", of.policy) };
    assert_eq!(hedge.delay, Delay::Fixed(Duration::from_micros(200)));
    assert_eq!(hedge.max_hedges, 2);
}

#[test]
fn a_class_of_a_method_has_its_own_settings_trial_and_thoughts() {
    let config = read(
        "[[method]]\nid = 3\n[[method]]\nid = 3\nclass = 2\n\
         canary = { share = 0.25, tie = {} }\n\
         shadow = [{ delay = \"1ms\" }, { percentile = 0.9 }, { stagger = \"5us\" }]\n",
    );
    let (_, of) = &config.methods[1];
    assert_eq!(of.class, Some(TrafficClass(2)));
    let canary = of.canary.as_ref().unwrap();
    assert!(matches!(canary.policy, Policy::Tied(_)) && canary.share == 0.25);
    let stagger = Stagger::Fixed(Duration::from_micros(5));
    assert_eq!((of.shadow.len(), of.shadow[2]), (3, Candidate::Tie(stagger)));
}

#[test]
fn the_switch_and_the_budgets_are_read() {
    let text = "second_copies = false\n[budget]\nburst = 9\n";
    let config = Config::from_toml(&format!("{text}{REPLICA}")).unwrap();
    assert!(!config.core.switch.is_on());
    assert_eq!(config.core.budget.level(), 9);
    let config = read("[[method]]\nid = 3\nbudget = { burst = 7 }\n");
    assert_eq!(config.methods[0].1.budget.as_ref().unwrap().level(), 7);
    assert!(config.core.switch.is_on());
}

#[test]
fn labels_are_read_whole_or_refused() {
    let with = |labels: &str| Config::from_toml(&format!("labels = {labels}\n{REPLICA}"));
    let config = with("[\"hit\", \"disk\"]").unwrap();
    assert_eq!(config.core.labels, ["hit", "disk"].map(Label::new));
    let long = "x".repeat(33);
    let error = with(&format!("[\"{long}\"]")).unwrap_err().to_string();
    assert_eq!(error, format!("line 1: the label {long:?} is longer than 32 bytes"));
    let many = vec!["\"x\""; 16].join(", ");
    let error = with(&format!("[{many}]")).unwrap_err().to_string();
    assert_eq!(error, "line 1: labels is 16 long, but must be up to 15 long");
}

#[test]
fn a_value_out_of_range_is_refused_with_its_line_and_what_it_may_be() {
    let text = "[[method]]\nid = 3\nhedge = { percentile = 95.0 }\n";
    assert_eq!(error(text), "line 6: hedge.percentile is 95, but must be 0.5 to 0.9999");
    let text = "[[method]]\nid = 3\n[method.hedge]\nmax = \"1ms\"\nmin = \"2ms\"\n";
    assert_eq!(error(text), "line 8: hedge.min is 2ms, but must be at most hedge.max");
    let text = "[[method]]\nid = 3\n\n[method.canary]\nshare = 2.0\n";
    assert_eq!(error(text), "line 8: canary.share is 2, but must be 0 to 1");
    let text = "[budget]\nfraction = 0.1\nburst = 1_000_000\n";
    assert_eq!(error(text), "line 6: budget.burst is 1000000, but must be up to 100000");
    let text = "[[method]]\nid = 3\nbudget = { drain = -1.0 }\n";
    assert_eq!(error(text), "line 6: budget.drain is -1, but must be 0, or 1/2048 to 1000");
    let text = "[[method]]\nid = 3\ncanary = { share = 0.5, hedge = { percentile = 0.1 } }\n";
    assert_eq!(error(text), "line 6: hedge.percentile is 0.1, but must be 0.5 to 0.9999");
    let text =
        "[[method]]\nid = 3\nshadow = [\n  { delay = \"1ms\" },\n  { percentile = 9.0 },\n]\n";
    assert_eq!(error(text), "line 8: hedge.quantile is 9, but must be 0.5 to 0.9999");
}

#[test]
fn spans_have_units_up_to_hours_and_errors_name_them() {
    let patience = |text: &str| read_first(&format!("patience = {text}\n"));
    for (text, seconds) in [("\"90s\"", 90), ("\"1.5min\"", 90), ("\"2m\"", 120), ("\"1 h\"", 3600)]
    {
        let read = patience(text).unwrap().core.patience;
        assert_eq!(read, Duration::from_secs(seconds), "{text}");
    }
    for text in ["\"2 weeks\"", "\"300\"", "\"-1s\"", "300", "\"\""] {
        let error = patience(text).unwrap_err().to_string();
        assert!(error.contains("ns, us, ms, s, min (or m) and h"), "{text}: {error}");
    }
}

#[test]
fn what_is_of_another_kind_is_told_what_it_may_be_in_the_file_s_own_words() {
    let method = "[[method]]\nid = 1\n";
    let inner = ["retry", "replies", "tie", "hedge", "canary"];
    let mut wrong: Vec<String> = inner.iter().map(|it| format!("{method}{it} = true\n")).collect();
    wrong.push(format!("{method}hedge = {{ auto_off = 1 }}\n"));
    wrong.push(format!("{method}shadow = [1]\n"));
    wrong.extend(
        ["[budget]\nfraction = {}", "method = [1]", "[[method]]\nid = {}"].map(String::from),
    );
    for text in &wrong {
        let error = error(text);
        assert!(!error.contains("Written"), "{text}: {error}");
    }
    let of_the_whole = ["retry", "eject", "budget", "pick", "replica", "method"];
    for text in of_the_whole.map(|it| format!("{it} = true\n")) {
        let error = read_first(&text).unwrap_err().to_string();
        assert!(!error.contains("Written"), "{text}: {error}");
    }
    assert!(error(&format!("{method}tie = true")).contains("{ stagger = \"100us\" }"));
}

#[test]
fn a_value_of_the_wrong_kind_is_told_in_plain_words_with_its_line_and_an_example() {
    for (text, expected) in [
        ("id = \"read\"", "string \"read\", expected a whole number from 0 to 65535, such as 1"),
        ("id = 70_000", "integer `70000`, expected a whole number from 0 to 65535, such as 1"),
        ("id = 1\nclass = 256", "integer `256`, expected a whole number from 0 to 255, such as 1"),
        ("id = 1\nidempotent = 1", "integer `1`, expected true or false"),
        (
            "id = 1\nbudget = { burst = 0.5 }",
            "expected a whole number from 0 to 4294967295, such as 1000",
        ),
        (
            "id = 1\nbudget = { fraction = \"2 %\" }",
            "string \"2 %\", expected a number such as 0.5",
        ),
        ("id = 1\nreplies = { good = 5 }", "integer `5`, expected a list such as [1, 2]"),
        (
            "id = 1\npolicy = \"tied\"",
            "tied where it has `tie = {}`, hedged where it has `hedge = {}`, and both where it has both",
        ),
    ] {
        let found = error(&format!("[[method]]\n{text}\n"));
        let line = 4 + text.lines().count();
        assert!(
            found.starts_with(&format!("line {line}: ")) && found.ends_with(expected),
            "{found}"
        );
        // As `main` prints it.
        let shown = Config::from_toml(&format!("{REPLICA}[[method]]\n{text}\n")).unwrap_err();
        assert!(format!("{shown:?}").contains(expected), "{shown:?}");
    }
    let found = error("zone = 1\n");
    assert!(found.ends_with("integer `1`, expected text in quotes"), "{found}");
}

/// A file with these settings of the whole before its replica.
fn read_first(text: &str) -> Result<Config, FileError> {
    Config::from_toml(&format!("{text}{REPLICA}"))
}

#[test]
fn what_contradicts_itself_is_refused() {
    let text = "[[method]]\nid = 3\nhedge = { delay = \"1ms\", max = \"2ms\" }\n";
    let expected = "line 6: hedge has a fixed delay and a percentile's settings; \
                    leave one of them out";
    assert_eq!(error(text), expected);
    let text = "[[method]]\nid = 3\nshadow = [{ delay = \"1ms\", stagger = \"2ms\" }]\n";
    assert_eq!(error(text), "line 6: it must be one of a delay, a percentile and a stagger");
    let text = "[[method]]\nid = 3\nclass = 1\n[[method]]\nid = 3\n[[method]]\nid = 3\nclass = 1\n";
    assert_eq!(error(text), "line 10: method 3 is here twice; of each class once");
}

#[test]
fn what_is_not_known_is_refused_with_its_line() {
    assert!(error("[[method]]\nid = 3\nhegde = {}\n").contains("line 6"));
    assert!(error("[[method]]\nid = 3\ndeadline = \"5 minutes\"\n").contains("line 6"));
    assert!(error("[[method]]\nid = 3\ndeadline = 5\n").contains("line 6"));
}

#[test]
fn a_replica_that_is_there_twice_or_nowhere_is_refused() {
    assert_eq!(error(REPLICA), "line 5: replica 1 is here twice; each needs its own id");
    let text = "[[replica]]\nid = 2\naddress = \"10.0.0.1\"\n";
    assert!(
        error(text).starts_with("line 6: \"10.0.0.1\" is no address such as"),
        "{}",
        error(text)
    );
}

#[test]
fn a_name_is_resolved_and_remembered() {
    let text = "[[replica]]\nid = 2\naddress = \"localhost:7001\"\n";
    let config = read(text);
    let named = &config.replicas[1];
    assert!(named.address.ip().is_loopback());
    assert_eq!(named.host.as_deref(), Some("localhost:7001"));
    assert_eq!(config.replicas[0].host, None);
    let used = "10.9.9.9:7000".parse().unwrap();
    assert_ne!(resolve("localhost:7001", Some(used)), Ok(used), "it has moved");
    assert_eq!(resolve("localhost:7001", Some(named.address)), Ok(named.address));
}

#[test]
fn what_is_no_file_or_too_large_for_one_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let error = Config::from_file(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("it is no regular file"), "{error}");
    let large = folder.path().join("large");
    std::fs::File::create(&large).unwrap().set_len((1 << 20) + 1).unwrap();
    let error = Config::from_file(&large).unwrap_err().to_string();
    assert!(error.contains("larger than 1 MiB"), "{error}");
    let endless = Config::from_file("/dev/zero").unwrap_err().to_string();
    assert!(endless.contains("no regular file"), "{endless}");
}

#[test]
fn a_file_that_is_not_there_or_has_an_error_is_named() {
    let error = Config::from_file("/nowhere/replicas.toml").unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/replicas.toml: "), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("replicas.toml");
    std::fs::write(&path, format!("{REPLICA}[[method]]\nid = 3\nmax_attempts = 9\n")).unwrap();
    let error = Config::from_file(&path).unwrap_err().to_string();
    let expected = "line 6: max_attempts is 9, but must be 1 to 8";
    assert_eq!(error, format!("{}: {expected}", path.display()));
}

#[test]
fn a_replicas_place_and_role_are_read_and_checked() {
    let text = "zone = \"a\"\n[[replica]]\nid = 2\naddress = \"127.0.0.1:1\"\nzone = \"b\"\n\
                weight = 3\nmethods = [4]\nkeys = [[1, 5], [7, 7]]\nresults = \"x\"\n";
    let config = Config::from_toml(text).unwrap();
    let placement = config.replicas[0].placement(9, Some(4), config.spot());
    assert_eq!((placement.domain, placement.distance, placement.weight), (9, 1, 3));
    assert_eq!((config.replicas[0].results.as_deref(), placement.results), (Some("x"), Some(4)));
    assert_eq!((placement.methods, placement.keys), (Some(vec![Method(4)]), vec![1..=5, 7..=7]));
    let distance = |zone, region| {
        let text = text.replace("zone = \"b\"", "zone = \"b\"\nregion = \"south\"");
        let replica = &Config::from_toml(&text).unwrap().replicas[0];
        replica.placement(0, None, Spot { zone, region }).distance
    };
    let found =
        [(None, None), (Some("b"), None), (Some("a"), Some("south")), (Some("b"), Some("x"))];
    assert_eq!(found.map(|(zone, region)| distance(zone, region)), [0, 0, 1, 2]);
    let error = Config::from_toml(&text.replace("[7, 7]", "[7, 6]")).unwrap_err().to_string();
    assert_eq!(error, "line 8: replica.keys is 7..=6, but must be from the lower to the higher");
    let error = Config::from_toml(&text.replace("= 3", "= 0")).unwrap_err().to_string();
    assert_eq!(error, "line 6: replica.weight is 0, but must be 1 to 32");
}

#[test]
fn what_replies_are_worth_and_how_stale_they_may_be_is_read() {
    let config = read(
        "[[method]]\nid = 3\nmax_staleness = \"250ms\"\n\
         replies = { good = [5], retryable = [7], stale = [9] }\n",
    );
    let of = &config.methods[0].1;
    assert_eq!(of.max_staleness, Some(Duration::from_millis(250)));
    let judged = [5, 7, 9, 8].map(|number| of.classifier.judge(Status::App(number), &[]));
    assert_eq!(judged, [Verdict::Good, Verdict::Retryable, Verdict::Stale, Verdict::Fatal]);
    let text = "[[method]]\nid = 3\nreplies = { good = [5], stale = [9, 5] }\n";
    assert_eq!(error(text), "line 6: error 5 is here twice; a reply is worth one thing");
    let text = "[[method]]\nid = 3\nreplies = { retryable = [65300] }\n";
    assert_eq!(error(text), "line 6: there is no error 65300; a service's own end at 65279");
}

#[test]
fn the_machine_s_settings_are_read_and_checked() {
    let text = "pick = \"round-robin\"\nwarm_up = \"10s\"\nload_lifetime = \"50ms\"\n\
                patience = \"2s\"\nretry = { most = 3 }\neject = { after = 9, first = \"5ms\" }\n";
    let with = |text: &str| Config::from_toml(&format!("{text}{REPLICA}"));
    let core = with(text).unwrap().core;
    assert_eq!((core.pick, core.warm_up), (PickRule::RoundRobin, Duration::from_secs(10)));
    let spans = (core.load_lifetime, core.patience);
    assert_eq!(spans, (Duration::from_millis(50), Duration::from_secs(2)));
    assert_eq!(core.retry, Some(RetryConfig { most: 3, ..RetryConfig::default() }));
    let first = Duration::from_millis(5);
    assert_eq!(core.eject, Some(EjectConfig { after: 9, first, ..EjectConfig::default() }));
    assert_eq!(with("eject = { enabled = false }\n").unwrap().core.eject, None);
    assert_eq!(with("").unwrap().core.eject, Some(EjectConfig::default()));
    let error = |text| with(text).unwrap_err().to_string();
    let found = error("zone = \"a\"\n[eject]\nafter = 0\n");
    assert_eq!(found, "line 3: eject.after is 0, but must be at least 1");
    let found = error("patience = \"1s\"\nretry = { most = 9 }\n");
    assert_eq!(found, "line 2: retry.most is 9, but must be 0 to 5");
    assert_eq!(error("\nwarm_up = \"3601s\"\n"), "line 2: warm_up is 3601s, but must be up to 1 h");
    assert!(error("pick = \"best\"\n").contains("line 1"));
}

#[test]
fn when_hedging_switches_itself_off_is_read_and_checked() {
    let hedge =
        |auto_off: &str| format!("[[method]]\nid = 3\nhedge = {{ auto_off = {auto_off} }}\n");
    let rule = |text: &str| match read(&hedge(text)).methods[0].1.policy {
        Policy::Hedged(hedge) => hedge.auto_off,
        policy => panic!("{policy:?}"),
    };
    assert_eq!(rule("{ enabled = false }"), None);
    let given = AutoOff { min_wins: 0.25, least_hedges: 7, ..AutoOff::default() };
    assert_eq!(rule("{ min_wins = 0.25, least_hedges = 7 }"), Some(given));
    let found = error(&hedge("{ max_errors = 2.0 }"));
    assert_eq!(found, "line 6: hedge.auto_off.max_errors is 2, but must be 0 to 1");
}

#[test]
fn a_method_s_limits_are_read_and_checked() {
    let config = read("[[method]]\nid = 3\nmax_attempts = 2\nretry = { most = 3 }\n");
    let retry = Some(RetryConfig { most: 3, ..RetryConfig::default() });
    assert_eq!(config.methods[0].1.limits, Limits { attempts: 2, retry });
    let found = error("[[method]]\nid = 3\nmax_attempts = 9\n");
    assert_eq!(found, "line 6: max_attempts is 9, but must be 1 to 8");
    let found = error("[[method]]\nid = 3\nretry = { first = \"1ns\" }\n");
    assert_eq!(found, "line 6: retry.first is 1ns, but must be 10 us to 60 s");
}

#[test]
fn a_set_whose_members_are_known_is_not_looked_up_and_has_what_the_file_says_now() {
    let set = Some("_bowline._tcp.store.invalid".to_owned());
    let member = Replica { set, weight: 3, ..Replica::new(7, "10.0.0.7:7000".parse().unwrap()) };
    let text = "[[replica]]\naddress = \"_bowline._tcp.store.invalid\"\nzone = \"b\"\n";
    let config = Config::from_toml_again(text, std::slice::from_ref(&member)).unwrap();
    assert_eq!(config.replicas, [Replica { zone: Some("b".to_owned()), ..member }]);
    let unnamed = error("[[replica]]\naddress = \"10.0.0.1:7000\"\n");
    assert!(unnamed.starts_with("line 5: a replica needs an id; one without"), "{unnamed}");
}

#[test]
fn a_rule_that_has_settings_is_read_with_them_and_they_are_checked() {
    let config = Config::from_toml(&format!("pick = {{ c3 = {{ clients = 9 }} }}\n{REPLICA}"));
    assert_eq!(config.unwrap().core.pick, PickRule::C3 { clients: 9 });
    let none = Config::from_toml(&format!("pick = {{ c3 = {{ clients = 0 }} }}\n{REPLICA}"));
    let found = none.unwrap_err().to_string();
    assert_eq!(found, "line 1: pick.c3.clients is 0, but must be 1 to 10000");
}

#[test]
fn what_could_never_work_is_refused() {
    let found = error("[[method]]\nid = 3\ndeadline = \"0s\"\n");
    assert_eq!(found, "line 6: deadline is 0ns, but must be above zero");
    let found = error("methods = []\n");
    assert_eq!(found, "line 4: replica.methods is empty, but must be left out, or one at least");
    let found = error("[[method]]\nid = 3\nretry = { first = \"1s\" }\n");
    assert!(found.contains("retry.max is 100ms, but must be at least retry.first"), "{found}");
}

#[test]
fn what_could_never_be_reached_is_refused_with_its_line_and_the_cure() {
    let replica =
        |id: u16, address: &str| format!("[[replica]]\nid = {id}\naddress = \"{address}\"\n");
    let found = error(&replica(2, "10.0.0.2:0"));
    assert_eq!(found, "line 6: replica 2 has port 0; it needs the port that it listens on");
    let found = error(&replica(2, "127.0.0.1:7000"));
    let expected = "replicas 1 and 2 are both at 127.0.0.1:7000; each needs its own address";
    assert_eq!(found, format!("line 6: {expected}"));
}

#[test]
fn names_that_lead_to_one_address_for_a_while_are_taken_unless_they_are_one() {
    let named = |id: u16, host: &str| Replica {
        host: Some(host.to_owned()),
        ..Replica::new(id, "10.0.0.5:7000".parse().unwrap())
    };
    let found = |id| Replica {
        host: None,
        set: Some("_bowline._tcp.store.example".to_owned()),
        ..named(id, "")
    };
    let check = |replicas: [Replica; 2]| Config::new(replicas).check().map_err(|it| it.to_string());
    assert_eq!(check([named(1, "one:7000"), named(2, "two:7000")]), Ok(()));
    assert_eq!(check([named(1, "one:7000"), Replica { host: None, ..named(2, "") }]), Ok(()));
    assert_eq!(check([found(1), found(2)]), Ok(()));
    let nowhere = Replica { address: "10.0.0.5:0".parse().unwrap(), ..found(1) };
    assert_eq!(check([nowhere, found(2)]), Ok(()), "one record is no reason to refuse the others");
    let expected = "replicas 1 and 2 are both at 10.0.0.5:7000; each needs its own address";
    assert_eq!(check([named(1, "one:7000"), named(2, "one:7000")]).unwrap_err(), expected);
}

#[test]
fn how_large_a_reply_may_be_is_read_and_checked() {
    let with = |text: &str| Config::from_toml(&format!("{text}{REPLICA}"));
    assert_eq!(with("max_reply = 4_194_304\n").unwrap().max_reply, 4 << 20);
    assert_eq!(with("").unwrap().max_reply, 1 << 20);
    for (bytes, found) in [("0", "0"), ("67_108_865", "67108865")] {
        let error = with(&format!("zone = \"a\"\nmax_reply = {bytes}\n")).unwrap_err().to_string();
        assert_eq!(error, format!("line 2: max_reply is {found}, but must be 1 to 67108864"));
    }
}

#[test]
fn what_main_prints_of_a_bad_file_is_the_line_and_not_the_file() {
    for text in ["[[method]]\nid = 3\nhegde = {}\n", "[[method]]\nid = 3\nmax_attempts = 9\n"] {
        let error = Config::from_toml(&format!("{REPLICA}{text}")).unwrap_err();
        assert_eq!(format!("{error:?}"), format!("{error:#}"));
        assert!(format!("{error:?}").contains("line 6"), "{error:?}");
    }
}

#[test]
fn what_a_log_gets_of_a_bad_file_is_one_line_and_who_wants_it_sees_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("replicas.toml");
    // An unknown key, two errors of syntax, and a value of the wrong kind.
    for text in ["hegde = {}", "id = [1,, 2]", "idempotent =", "tie = true"] {
        std::fs::write(&path, format!("{REPLICA}[[method]]\nid = 3\n{text}\n")).unwrap();
        let error = Config::from_file(&path).unwrap_err();
        let line = error.to_string();
        assert!(line.starts_with(&format!("{}: line 6: ", path.display())), "{line}");
        assert!(
            !line.contains('\n') && line.len() > path.display().to_string().len() + 15,
            "{line}"
        );
        let place = format!("{error:#}");
        assert!(place.starts_with(&format!("{}: ", path.display())), "{place}");
        assert!(place.contains(&format!("\n6 | {text}\n")), "{place}");
    }
}
