//! Every option of every command refuses what it can't be, names itself, and says what it takes.

use clap::{CommandFactory, builder::Command as Definition};

use super::{Cli, NoCommand, parse};

/// What an option is not, by what its help calls its value, each with a part of what is told.
fn malformed(value: &str) -> &'static [(&'static str, &'static str)] {
    match value.trim_end_matches(",...") {
        "TIME" => &[
            ("soon", "not a number"),
            ("7", "no unit; write for example 7ms or 7s"),
            ("-5ms", "a negative one"),
            ("7 weeks", "there are ns, us, ms, s, min"),
            ("1e400s", "out of range"),
        ],
        "S" | "US" => &[("x", "not a number"), ("-1", "a negative one"), ("1e9s", "at most")],
        "SIZE" => &[
            ("big", "not a number"),
            ("65536", "no unit; write for example 65536MiB"),
            ("0B", "64MiB"),
            ("4097B", "whole blocks of 4 KiB; write for example 64MiB"),
            ("4.1KiB", "not a whole number of bytes"),
        ],
        "PERCENT" => &[
            ("much", "not a number"),
            ("101%", "more than 100 %"),
            ("0.5", "write 50% or 0.5%"),
            ("5ms", "write for example 10%"),
        ],
        "PER_SECOND" => &[
            ("many", "not a number"),
            ("0", "above zero"),
            ("1e12", "at most 10000000"),
            ("5ms", "write calls a second"),
        ],
        "HOST:PORT" => &[
            ("127.0.0.1", "write HOST:PORT, such as 10.0.0.2:7000"),
            ("127.0.0.1:seven", "write HOST:PORT"),
            ("store:70000", "write HOST:PORT"),
            (":7000", "write HOST:PORT"),
            ("::1:7000", "[2001:db8::2]:7000"),
        ],
        "N=HOST:PORT" => &[
            ("10.0.0.2:7000", "write N=HOST:PORT, such as 1=10.0.0.2:7000"),
            ("x=10.0.0.2:7000", "write N=HOST:PORT"),
            ("99999=10.0.0.2:7000", "N up to 65535"),
            ("1=nowhere", "write N=HOST:PORT"),
            ("1=store:0", "no port 0"),
            ("1=2001:db8::2", "write N=HOST:PORT"),
        ],
        "ADDR" => &[("here", "IP:PORT, such as 127.0.0.1:7100"), ("127.0.0.1", "IP:PORT")],
        "N" | "CALLS" | "C" | "BYTES" => &[
            ("x", "a whole number"),
            ("-1", "a whole number"),
            ("1.5", "a whole number"),
            ("99999999999999999999", "a whole number"),
        ],
        "SIGMA" => &[("x", "not a number"), ("9", "between 0 and 3")],
        "TIMES" => &[("x", "1 to 1000"), ("0", "1 to 1000")],
        "MODEL" => &[("frantic:5ms", "there are fixed, exp"), ("exp:5", "5ms")],
        "KINDS" => &[("fire", "there are stall, crash, slow:TIMES")],
        "NAME" | "NAMES" | "HOW" | "PATTERN" => &[("frantic", "possible values: ")],
        "LEVEL" => &[("frantic", "\"warn\", \"info\"")],
        "DIR" | "FILE" => &[("", "a value is required")],
        other => panic!("what is no {other}?"),
    }
}

/// Each innermost command, with the words that lead to it.
fn commands<'a>(words: &str, definition: &'a Definition) -> Vec<(String, &'a Definition)> {
    let own = (words.to_owned(), definition);
    let inner = definition.get_subcommands().filter(|inner| inner.get_name() != "help");
    let inner = inner.flat_map(|inner| commands(&format!("{words} {}", inner.get_name()), inner));
    [own].into_iter().chain(inner).collect()
}

#[test]
fn every_option_refuses_a_malformed_value_names_itself_and_says_what_it_takes() {
    let program = Cli::command();
    let mut refused = 0;
    for (words, definition) in commands("bowline", &program) {
        let arguments = definition
            .get_arguments()
            .filter(|argument| argument.get_action().takes_values() && !argument.is_hide_set());
        for argument in arguments {
            let name = argument.get_value_names().expect("a name")[0].as_str();
            for (value, told) in malformed(name) {
                let (word, option) = match argument.get_long() {
                    Some(long) => (format!("--{long}={value}"), format!("--{long}")),
                    None => ((*value).to_owned(), format!("<{name}>")),
                };
                let line = words.split(' ').map(str::to_owned).chain([word.clone()]);
                let message = match parse(line) {
                    Err(NoCommand::Wrong(message)) => message,
                    other => panic!("{words} {word:?} gave {other:?}"),
                };
                assert!(message.contains(&option), "{words} {word}: {message}");
                assert!(message.contains(told), "{words} {word}: {message}");
                assert!(!message.contains('\n'), "{words} {word}: {message}");
                refused += 1;
            }
        }
    }
    assert!(refused > 300, "only {refused}");
}
