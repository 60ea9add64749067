//! The command line: what can be asked for, and how it is explained.

mod args;
mod idle;
mod limits;
#[cfg(test)]
mod malformed;
mod model;
mod policy;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use idle::Given;

use crate::report::glossary;

pub(crate) use args::host_and_port;
pub use args::{
    CompareArgs, EchoClientArgs, EchoServerArgs, EchoSide, FaultArgs, LoadArgs, LoadShape, Peer,
    PolicyArgs, ProbeArgs, ReplicaArgs, ServeArgs, StatArgs,
};
pub use model::{Copies, Offered, PredictArgs, SimulateArgs, StaggerArg, SweepArgs, WorldArgs};
pub use policy::{FaultKind, FaultPattern, Pick, Policy};

/// Compare no redundancy, delayed hedging and tied requests on live replicas.
///
/// Without a command, `bowline` compares: it starts three replicas as processes of their own,
/// stalls one at a time as a garbage collection would, sends all policies the same calls at the
/// same times, and prints what each did to the tail of latency and what it cost.
#[derive(Debug, Parser)]
#[command(
    name = "bowline",
    version,
    args_conflicts_with_subcommands = true,
    max_term_width = 100,
    after_help = "Durations have a unit (250us, 2ms, 1.5s, 1min), and so have sizes (64MiB).\n\
                  'bowline COMMAND --help' explains a command, and its figures."
)]
pub struct Cli {
    /// What to do; nothing said means compare.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to compare, when no command is given.
    #[command(flatten)]
    pub compare: CompareArgs,
}

/// What `bowline` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run every policy against the same replicas, calls and stalls, and report (the default)
    Compare(Box<CompareArgs>),
    /// Be one replica: serve 4 KiB blocks from a file
    ///
    /// The addresses of its peers, to which it sends the cancels of tied requests, come from
    /// --peer or from a TOML file; see --config.
    Serve(Box<ServeArgs>),
    /// Send calls at a set rate to replicas that run already, under one policy
    ///
    /// Open loop: calls are sent when they fall due, whether or not earlier ones have returned,
    /// and latency counts from then.
    Load(Box<LoadArgs>),
    /// Show what a server says of itself, again and again on one screen
    ///
    /// The server tells it at the address of its --metrics. On anything but a terminal each screen
    /// is plain text below the one before. A server that ends meanwhile is waited for.
    Stat(StatArgs),
    /// Try many policies in virtual time: no replica, no network, no waiting
    ///
    /// Runs the client's and the replicas' own code in a simulated world: the same calls, service
    /// times and stalls under every policy. Prints latency by percentile and extra executions, where
    /// tied calls beat hedged ones, and where either harms. Everything is a model's: what your
    /// replicas do, you say with --service, by a distribution or by what was measured.
    Simulate(Box<SimulateArgs>),
    /// Reckon by formulas what hedged and tied calls would do, at once
    ///
    /// Prints what theory says of your service time and load: a delayed hedge where nothing queues,
    /// queues with and without ties, what a surge leaves behind, and what a request of many calls
    /// waits for. Each with the assumptions under which it holds; --simulate shows how far it is off
    /// where they do not.
    Predict(Box<PredictArgs>),
    /// Measure the bare stack: an echo, closed loop
    ///
    /// The client keeps a fixed number of calls in flight and prints one line of JSON, to be put
    /// beside the same line of another RPC system. Closed loop means that a slow reply delays
    /// the next call: such latencies say what the stack costs, not what users would see.
    #[command(subcommand)]
    Echo(EchoSide),
    /// Ask this machine's kernel what it can do, and whether Bowline can run here
    ///
    /// Each feature of io_uring that is used, or could be, is tried. The exit status is 0 if all that
    /// is required works; if not, what is printed says why, and what helps.
    Probe(ProbeArgs),
}

impl Cli {
    /// The command, with [`Command::Compare`] filled in where none was given.
    pub fn into_command(self) -> Command {
        self.command.unwrap_or_else(|| Command::Compare(Box::new(self.compare)))
    }
}

/// Why no command could be read off a command line.
#[derive(Debug)]
pub enum NoCommand {
    /// Help or the version was asked for; it prints itself, in colour where there is a terminal.
    Help(clap::Error),
    /// It was wrong: one line, for standard error.
    Wrong(String),
}

/// Reads a command line, whose first element is the program.
///
/// # Errors
/// Help, or what is wrong with the line.
pub fn parse<I, T>(line: I) -> Result<Command, NoCommand>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let line: Vec<OsString> = line.into_iter().map(Into::into).collect();
    let command = command_of(&line);
    let definition = explained(Cli::command());
    let matches = definition.clone().try_get_matches_from(with_negatives(line));
    let parsed = matches.and_then(|matches| {
        let cli =
            Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()))?;
        Ok((cli, Given::of(&definition, &matches)))
    });
    match parsed {
        Ok((cli, given)) => check(cli.into_command(), &given, &command),
        Err(error) if error.use_stderr() => Err(NoCommand::Wrong(one_line(&error, &command))),
        Err(help) => Err(NoCommand::Help(help)),
    }
}

/// Has the commands that print figures say what these mean, and what their exit status does.
fn explained(command: clap::Command) -> clap::Command {
    let told = format!(
        "What the rows of the table mean, beside percentiles of latency (counted from when a call\n\
         fell due; a call that failed counts with its deadline, at least):\n{}\n\
         Exit status: 0 if all went as planned; 1 if not, or if a replica ended that was started\n\
         here, or if any call failed that had time and was not refused, or got wrong bytes, or if\n\
         no call of a policy was answered; 2 if the command line is wrong; 130 if the run was\n\
         interrupted. Calls that miss their deadline, or that replicas refuse, are what is\n\
         measured, and so is what becomes of calls when a replica elsewhere dies: that is counted,\n\
         and change no status.",
        glossary()
    );
    ["compare", "load"].into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |command| command.after_long_help(told.clone()))
    })
}

/// Joins what begins like a negative number to the option before it, so that the option's own words
/// refuse it.
fn with_negatives(line: Vec<OsString>) -> Vec<OsString> {
    let begins_with = |word: &OsString, sign: &str, next: fn(&char) -> bool| {
        let rest = word.to_str().and_then(|word| word.strip_prefix(sign));
        rest.is_some_and(|rest| {
            !rest.contains('=') && rest.chars().next().as_ref().is_some_and(next)
        })
    };
    let mut joined: Vec<OsString> = Vec::new();
    for word in line {
        let negative = begins_with(&word, "-", char::is_ascii_digit);
        match joined.last_mut() {
            Some(option) if negative && begins_with(option, "--", char::is_ascii_alphabetic) => {
                option.push("=");
                option.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

/// The command that a line is about, with the program, for its help: `bowline echo client`.
fn command_of(line: &[OsString]) -> String {
    let program = Cli::command();
    let (mut command, mut name) = (&program, program.get_name().to_owned());
    for word in line.iter().skip(1) {
        let Some(inner) = command.find_subcommand(word) else { break };
        name = format!("{name} {}", inner.get_name());
        command = inner;
    }
    name
}

/// What no single option can say of itself.
fn check(command: Command, given: &Given, name: &str) -> Result<Command, NoCommand> {
    let checked = match &command {
        Command::Compare(args) => limits::compare(args),
        Command::Load(args) => limits::load_command(args),
        Command::Simulate(args) => limits::simulate(args),
        Command::Serve(_)
        | Command::Predict(_)
        | Command::Stat(_)
        | Command::Echo(_)
        | Command::Probe(_) => Ok(()),
    };
    match checked.and_then(|()| given.check(&command)) {
        Ok(()) => Ok(command),
        Err(why) => Err(NoCommand::Wrong(format!("{why}; see '{name} --help'"))),
    }
}

/// clap's message without the usage that follows it, on one line.
fn one_line(error: &clap::Error, command: &str) -> String {
    let text = error.render().to_string();
    let echo = command == "bowline echo";
    let sides = "server and client, see 'bowline echo --help'";
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && echo {
        return format!("echo needs a side; there are {sides}");
    }
    let said = text.split("\nUsage:").next().unwrap_or(&text);
    let said = said.split("\nFor more information").next().unwrap_or(said);
    let words: Vec<&str> = said.split_whitespace().collect();
    let said = words.join(" ");
    let said = said.trim_start_matches("error: ").trim_end_matches('.');
    if error.kind() == ErrorKind::InvalidSubcommand && echo {
        return format!("{said}; there are {sides}");
    }
    if error.kind() == ErrorKind::InvalidSubcommand {
        return format!(
            "{said}; there are compare, serve, load, simulate, predict, stat, echo and probe, see 'bowline --help'"
        );
    }
    format!("{said}; see '{command} --help'")
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn wrong(line: &[&str]) -> String {
        match parse(line) {
            Err(NoCommand::Wrong(message)) => message,
            other => panic!("{line:?} gave {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_means_compare_and_takes_its_options() {
        let Ok(Command::Compare(args)) = parse(["bowline", "--duration", "20s", "--seed", "5"])
        else {
            panic!("compare is the default");
        };
        assert_eq!(args.duration, Duration::from_secs(20));
        assert_eq!(args.load.seed, 5);
        assert!(matches!(parse(["bowline", "compare"]), Ok(Command::Compare(_))));
    }

    #[test]
    fn an_unknown_command_is_one_line_that_names_it() {
        let message = wrong(&["bowline", "frobnicate"]);
        assert!(message.contains("'frobnicate'") && message.contains("--help"), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }

    #[test]
    fn a_value_that_may_not_be_is_named_with_its_option() {
        for (line, option, told) in [
            ("--deadline 0s", "--deadline", "above zero"),
            ("simulate --deadline 0", "--deadline", "above zero"),
            ("--rate -3", "for '--rate", "a negative one"),
            ("--policies none,frantic", "frantic", "hedged"),
            ("--policies tied,none,tied", "--policies", "'tied' twice"),
        ] {
            let message = wrong(&line_of(line));
            assert!(message.contains(option) && message.contains(told), "{line}: {message}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_command_leads_to_the_help_of_that_command() {
        for (line, help) in [
            ("predict --load 150%", "'bowline predict --help'"),
            ("predict --seed -1 --simulate", "'bowline predict --help'"),
            ("load", "'bowline load --help'"),
            ("load --replicas a:1 --duration 160h", "'bowline load --help'"),
            ("echo client --conns 0", "'bowline echo client --help'"),
            ("--rate 0", "'bowline --help'"),
        ] {
            let message = wrong(&line_of(line));
            assert!(message.ends_with(&format!("see {help}")), "{line}: {message}");
        }
    }

    #[test]
    fn what_is_too_much_is_one_line_that_names_the_option_and_the_limit() {
        for (line, option, limit) in [
            ("--duration 10000h", "--duration", "168h"),
            ("--duration 99999999999999h", "--duration", "168h"),
            ("--duration 160h", "--duration", "10000000 calls"),
            ("--rate 1000000000000", "--rate", "10000000"),
            ("--rate 10000000 --warmup 2s --duration 1s", "--warmup", "10000000 calls"),
            ("--rounds 1431655766", "--rounds", "1000"),
            ("--rounds 1001", "--rounds", "1000"),
            ("--burst 4000000000", "--burst", "100000"),
            ("--slots 4000000000", "--slots", "65536"),
            ("--queue 4000000000", "--queue", "1048576"),
            ("--service 1h", "--service", "60s"),
            ("--stall 1ns --stall-gap 0", "--stall-gap", "100000 stalls"),
            ("--stall 200h", "--stall", "1h"),
            ("--deadline 9999h", "--deadline", "1h"),
            ("load --replicas a:1 --duration 160h", "--duration", "10000000 calls"),
            ("echo client --addr 127.0.0.1:9 --inflight 4000000000", "--inflight", "65536"),
            ("echo client --addr 127.0.0.1:9 --conns 0", "--conns", "1 to"),
            ("echo client --addr 127.0.0.1:9 --payload 16777217", "--payload", "0 to 16777216"),
            ("echo client --addr 127.0.0.1:9 --payload -1", "--payload", "0 to 16777216"),
            ("echo client --addr 127.0.0.1:9 --seconds 1e9", "--seconds", ""),
            ("echo client --addr 127.0.0.1:9 --seconds 99999999", "--seconds", "168h"),
        ] {
            let message = wrong(&line_of(line));
            assert!(message.contains(option) && message.contains(limit), "{line}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn too_little_to_measure_is_refused() {
        for line in ["--duration 0", "--rate 0.001", "load --replicas a:1 --duration 1us"] {
            let message = wrong(&line_of(line));
            assert!(message.contains("less than one call"), "{line}: {message}");
        }
    }

    #[test]
    fn what_the_client_would_refuse_is_refused_in_the_words_of_the_options() {
        for (line, option) in [
            ("--hedge-percentile 0", "--hedge-percentile"),
            ("--hedge-percentile 100", "--hedge-percentile"),
            ("--hedge-delay 1h", "--hedge-delay"),
            ("--stagger 1h", "--stagger"),
            ("--policies none,tied-hedged --hedge-delay 61s", "--hedge-delay"),
            ("load --replicas a:1 --policy hedged --hedge-percentile 1", "--hedge-percentile"),
        ] {
            let message = wrong(&line_of(line));
            assert!(message.starts_with(option), "{line}: {message}");
            assert!(!message.contains("hedge.") && !message.contains("tie."), "{message}");
        }
    }

    fn line_of(line: &str) -> Vec<&str> {
        ["bowline"].into_iter().chain(line.split_whitespace()).collect()
    }

    #[test]
    fn an_echo_without_a_side_hears_which_there_are() {
        for line in ["echo", "echo frob"] {
            let message = wrong(&line_of(line));
            assert!(message.contains("server and client"), "{message}");
            assert!(!message.contains("compare"), "{message}");
        }
        let message = wrong(&["elsewhere/bw", "echo"]);
        assert!(message.contains("server and client"), "{message}");
    }

    #[test]
    fn the_default_policies_can_be_copied_from_the_help() {
        let help = Cli::command().render_long_help().to_string();
        let default = help.split("[default: none").nth(1).and_then(|rest| rest.split(']').next());
        let default = format!("none{}", default.expect("the policies' default"));
        let Ok(Command::Compare(args)) = parse(["bowline", "--policies", &default]) else {
            panic!("{default}");
        };
        assert_eq!(args.policies, [Policy::None, Policy::Hedged, Policy::Tied]);
    }

    #[test]
    fn load_needs_replicas_and_says_so() {
        let message = wrong(&["bowline", "load"]);
        assert!(message.contains("--replicas"), "{message}");
    }

    #[test]
    fn echo_takes_the_options_of_its_peers() {
        let line = "bowline echo client --addr 127.0.0.1:9 --payload 64 --inflight 32 --conns 2 \
                    --seconds 5 --warmup 1 --cpu 1 --spin 50";
        let Ok(Command::Echo(EchoSide::Client(args))) = parse(line.split_whitespace()) else {
            panic!("{line}");
        };
        assert_eq!(
            (args.payload, args.inflight.get(), args.conns.get(), args.cpu),
            (64, 32, 2, Some(1))
        );
        assert_eq!((args.seconds, args.warmup), (Duration::from_secs(5), Duration::from_secs(1)));
        assert_eq!(args.spin, Duration::from_micros(50));
        let line = "bowline echo server --addr 127.0.0.1:9 --cpu 0";
        assert!(matches!(parse(line.split_whitespace()), Ok(Command::Echo(EchoSide::Server(_)))));
    }

    #[test]
    fn the_help_of_what_prints_figures_explains_them_and_its_status() {
        for line in ["bowline load --help", "bowline compare --help"] {
            let Err(NoCommand::Help(help)) = parse(line.split(' ')) else { panic!("{line}") };
            let help = help.render().to_string();
            for told in
                ["wasted work", "win rate", "+ withdrawn, twin", "CPU/call", "Exit status: 0"]
            {
                assert!(help.contains(told), "{line}, {told}: {help}");
            }
            let told = help.split("What the rows").nth(1).expect("figures");
            assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
            assert!(told.lines().all(|line| line == line.trim_end()), "{told}");
        }
    }

    #[test]
    fn help_is_no_error() {
        for line in [
            ["bowline", "--help", ""].as_slice(),
            &["bowline", "serve", "--help"],
            &["bowline", "echo", "--help"],
        ] {
            let line = line.iter().filter(|word| !word.is_empty());
            assert!(matches!(parse(line), Err(NoCommand::Help(_))));
        }
    }
}
