//! Options that were given and that change nothing, because of another: whoever wrote them meant
//! something by it, so that each is an error that names both.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command as Definition};

use super::args::{CompareArgs, FaultArgs, LoadArgs, ServeArgs, StatArgs};
use super::model::{PredictArgs, SimulateArgs};
use super::policy::{FaultPattern, Policy};
use super::{Command, EchoSide};

/// The options that stand on a command line, without their dashes.
#[derive(Debug)]
pub(super) struct Given(Vec<String>);

/// Whether all that was given has an effect.
type Check = Result<(), String>;

impl Given {
    /// Those of the innermost command.
    pub(super) fn of(program: &Definition, matches: &ArgMatches) -> Given {
        let (mut definition, mut matches) = (program, matches);
        while let Some((name, inner)) = matches.subcommand() {
            let Some(command) = definition.find_subcommand(name) else { break };
            (definition, matches) = (command, inner);
        }
        let written = definition.get_arguments().filter(|argument| {
            matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine)
        });
        Given(written.filter_map(|argument| argument.get_long()).map(str::to_owned).collect())
    }

    /// Whether all that was given for a command has an effect.
    pub(super) fn check(&self, command: &Command) -> Check {
        match command {
            Command::Compare(args) => self.compare(args),
            Command::Serve(args) => self.serve(args),
            Command::Load(args) => self.load(args),
            Command::Stat(args) => self.stat(args),
            Command::Simulate(args) => self.simulate(args),
            Command::Predict(args) => self.predict(args),
            Command::Echo(EchoSide::Server(_) | EchoSide::Client(_)) | Command::Probe(_) => Ok(()),
        }
    }

    /// If `idle`, none of these may be given: `because` says beside what, and the cure.
    fn none(&self, idle: bool, options: &[&str], because: &str) -> Check {
        let given = |option: &&&str| self.0.iter().any(|given| given == **option);
        match options.iter().find(given) {
            Some(option) if idle => Err(format!("--{option} has no effect {because}")),
            _ => Ok(()),
        }
    }

    fn compare(&self, args: &CompareArgs) -> Check {
        self.none(
            !args.replicas.is_empty(),
            &[
                "data",
                "slots",
                "queue",
                "service",
                "service-spread",
                "faults",
                "stall",
                "stall-gap",
            ],
            "with --replicas, as no replica is started: leave one of the two out",
        )?;
        self.faults(&args.faults)?;
        self.spread(args.replica.service.is_zero())?;
        self.policies("--policies", &args.policies)
    }

    fn load(&self, args: &LoadArgs) -> Check {
        self.policies("--policy", &[args.policy])
    }

    fn serve(&self, args: &ServeArgs) -> Check {
        // Whoever starts it for itself says all that there is to say.
        self.spread(args.how.service.is_zero() && !args.managed)
    }

    fn stat(&self, args: &StatArgs) -> Check {
        self.none(args.once, &["every"], "with --once: leave one of the two out")
    }

    fn simulate(&self, args: &SimulateArgs) -> Check {
        self.faults(&args.faults)?;
        self.policies("--policies", &args.policies)?;
        let one = args.world.replicas.get() == 1;
        self.none(one, &["pick"], "with --replicas 1, of which there is no choice")
    }

    fn predict(&self, args: &PredictArgs) -> Check {
        self.none(
            !args.simulate,
            &["calls", "seed", "queue", "deadline", "pick", "interruptible"],
            "without --simulate, as formulas know nothing of it: add that, or leave this out",
        )?;
        self.none(
            args.world.replicas.get() == 1,
            &["hedge-percentiles", "hedge-delays", "copies", "pick"],
            "with --replicas 1, as no second copy goes anywhere: give two or more",
        )?;
        self.none(
            args.surge <= 1.0,
            &["surge-for"],
            "with --surge 1, which is none: give a larger one",
        )
    }

    fn spread(&self, idle: bool) -> Check {
        self.none(idle, &["service-spread"], "with --service 0: give a mean that can spread")
    }

    fn faults(&self, args: &FaultArgs) -> Check {
        let off = args.faults == FaultPattern::Off;
        let cure = "with --faults off: leave one of the two out";
        self.none(off, &["stall", "stall-gap", "fault-kinds"], cure)?;
        let cure = "with --stall 0, which makes no stall: give a longer one, or --faults off alone";
        self.none(args.stall.is_zero(), &["faults", "stall-gap", "fault-kinds"], cure)
    }

    /// Settings of policies that are not there; `option` is the one that names policies.
    fn policies(&self, option: &str, policies: &[Policy]) -> Check {
        let any = |kinds: &[Policy]| policies.iter().any(|policy| kinds.contains(policy));
        let hedges = any(&[Policy::Hedged, Policy::TiedHedged]);
        let ties = any(&[Policy::Tied, Policy::TiedHedged]);
        let names: Vec<&str> = policies.iter().map(|policy| policy.name()).collect();
        let without =
            |kind| format!("with {option} {}: leave it out, or name {kind} there", names.join(","));
        let delays = ["hedge-percentile", "hedge-percentiles", "hedge-delay", "hedge-delays"];
        self.none(!hedges, &delays, &without("hedged"))?;
        self.none(!ties, &["stagger", "staggers"], &without("tied"))?;
        self.none(!hedges && !ties, &["budget", "budgets"], &without("hedged or tied"))?;
        let fixed = self.0.iter().any(|given| given == "hedge-delay");
        self.none(fixed, &["hedge-percentile"], "with --hedge-delay: leave one of the two out")
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{NoCommand, parse};

    #[test]
    fn an_option_without_effect_is_an_error_that_names_both() {
        let mut taken = Vec::new();
        for (line, option, other) in [
            ("--replicas a:1,b:2 --slots 4", "--slots", "--replicas"),
            ("compare --replicas a:1 --stall 5ms", "--stall", "--replicas"),
            ("compare --replicas a:1 --data x", "--data", "--replicas"),
            ("--faults off --stall-gap 1s", "--stall-gap", "--faults off"),
            ("--stall 0 --faults all", "--faults", "--stall 0"),
            ("--service 0 --service-spread 1", "--service-spread", "--service 0"),
            ("serve --service 0 --service-spread 1", "--service-spread", "--service 0"),
            ("--policies none,hedged --stagger 1ms", "--stagger", "--policies none,hedged"),
            ("--policies none,tied --hedge-delay 1ms", "--hedge-delay", "--policies none,tied"),
            ("--policies none --budget 5%", "--budget", "--policies none"),
            ("--hedge-delay 1ms --hedge-percentile 90%", "--hedge-percentile", "--hedge-delay"),
            ("load --replicas a:1 --hedge-delay 1ms", "--hedge-delay", "--policy tied"),
            ("load --replicas a:1 --policy none --budget 1%", "--budget", "--policy none"),
            ("stat a:1 --once --every 2s", "--every", "--once"),
            ("simulate --faults off --fault-kinds crash", "--fault-kinds", "--faults off"),
            (
                "simulate --policies none,hedged --staggers 0",
                "--staggers",
                "--policies none,hedged",
            ),
            ("simulate --policies none,tied --hedge-delays 1ms", "--hedge-delays", "none,tied"),
            ("simulate --policies none --budgets 1%", "--budgets", "--policies none"),
            ("simulate --replicas 1 --pick two-choices", "--pick", "--replicas 1"),
            ("predict --seed 7", "--seed", "--simulate"),
            ("predict --deadline 1s", "--deadline", "--simulate"),
            ("predict --interruptible", "--interruptible", "--simulate"),
            ("predict --replicas 1 --hedge-delays 1ms", "--hedge-delays", "--replicas 1"),
            ("predict --surge 1 --surge-for 2s", "--surge-for", "--surge 1"),
        ] {
            let words = ["bowline"].into_iter().chain(line.split_whitespace());
            let Err(NoCommand::Wrong(message)) = parse(words) else {
                taken.push(line);
                continue;
            };
            let told = format!("{option} has no effect with");
            assert!(message.starts_with(&told) && message.contains(other), "{line}: {message}");
            assert!(message.contains("--help"), "{line}: {message}");
        }
        assert!(taken.is_empty(), "these were taken: {taken:#?}");
    }

    #[test]
    fn what_has_an_effect_may_be_given_together() {
        for line in [
            "--faults one --stall 5ms --stall-gap 1s --policies tied-hedged --stagger 0",
            "--policies none,tied-hedged --hedge-percentile 99%",
            "--replicas a:1,b:2 --data-size 1MiB --policies none",
            "load --replicas a:1 --policy hedged --hedge-delay 1ms",
            "serve --managed --service 0 --service-spread 0.5",
            "simulate --faults all --fault-kinds crash,slow:2x --load 30%,60% --threads 2",
            "predict --simulate --seed 7 --deadline 1s --pick two-choices --surge-for 2s",
            "stat a:1 --every 2s",
        ] {
            let words = ["bowline"].into_iter().chain(line.split_whitespace());
            if let Err(wrong) = parse(words) {
                panic!("{line}: {wrong:?}");
            }
        }
    }
}
