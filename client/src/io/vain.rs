//! Settings that are sound one by one, and together can't do what they say. Nothing breaks by them, and a
//! call may bring a deadline of its own: so they are told, with the cure, and not refused.

use std::time::Duration;

use bowline_protocol::{Method, MethodInfo};
use tracing::warn;

use super::config::{Config, MethodConfig};
use crate::core::{Delay, HedgePolicy, Policy};

/// Says what is set in vain, unless it was before.
pub(super) fn tell(config: &Config, before: Option<&Config>) {
    let known = before.map_or_else(Vec::new, |before| all(before).collect());
    all(config).filter(|it| !known.contains(it)).for_each(|it| warn!("{it}"));
}

fn all(config: &Config) -> impl Iterator<Item = String> {
    let unknown = config
        .unknown_methods()
        .map(|error| format!("{error}; until it has, that is as if it were not set"));
    let of_methods = config.methods.iter().flat_map(|(method, of)| {
        let named = name(config, *method);
        let found = [one_copy(config, *method, of), no_time(of)];
        found.into_iter().flatten().map(move |why| format!("method {named}: {why}"))
    });
    unknown.chain(of_methods).chain(all_reserved(config)).chain(no_results(config))
}

fn name(config: &Config, method: Method) -> String {
    match config.service.and_then(|service| service.method(method)) {
        Some(MethodInfo { name, .. }) => format!("{} ({name:?})", method.0),
        None => method.0.to_string(),
    }
}

/// Its policy has second copies, and none of its calls can have one.
fn one_copy(config: &Config, method: Method, of: &MethodConfig) -> Option<String> {
    let tried = of.canary.as_ref().map(|canary| canary.policy);
    let policy = [Some(of.policy), tried].into_iter().flatten().find_map(|it| match it {
        Policy::None => None,
        Policy::Tied(_) => Some("tied"),
        Policy::Hedged(_) => Some("hedged"),
        Policy::TiedThenHedged(..) => Some("tied-hedged"),
    })?;
    let info = config.service.and_then(|service| service.method(method));
    let why = match info {
        _ if of.limits.attempts < 2 => "max_attempts is 1: allow 2 at least".to_owned(),
        Some(MethodInfo { duplicable: None, .. }) => {
            "its service does not declare it duplicable: declare it so".to_owned()
        }
        Some(MethodInfo { idempotent: false, keyed: false, .. }) => {
            "its service declares it neither idempotent nor keyed: declare what it is".to_owned()
        }
        Some(MethodInfo { idempotent: false, keyed: true, .. }) if !shares_results(config) => {
            "only a key protects it, and no two replicas share a store of results: let those that do \
             say the same `results` here, and be told of it (their server's `shared_results`)"
                .to_owned()
        }
        _ => return None,
    };
    Some(format!(
        "its policy is {policy}, but its calls have one copy each, as {why}, or its policy none"
    ))
}

fn shares_results(config: &Config) -> bool {
    let sharing = config.replicas.iter().filter(|replica| replica.results.is_some());
    let mut pairs = (1..).zip(sharing.clone());
    // The members of a set are alike, and may be more before long.
    pairs.any(|(n, one)| {
        one.set.is_some() || sharing.clone().skip(n).any(|other| one.results == other.results)
    })
}

/// Its calls are over before they could be hedged.
fn no_time(of: &MethodConfig) -> Option<String> {
    let HedgePolicy { delay, least_useful, .. } = of.policy.hedge()?;
    let (setting, first) = match delay {
        Delay::Fixed(delay) => ("delay", *delay),
        Delay::Percentile(percentile) => ("min", percentile.min),
    };
    (first + *least_useful >= of.deadline).then(|| {
        format!(
            "hedge.{setting} is {first:?}, and hedge.least_useful {least_useful:?}, but its deadline {:?}: \
             only calls that bring a longer one are hedged; shorten the former, or lengthen its deadline",
            of.deadline
        )
    })
}

/// Stores of results are named, and the service keeps none.
fn no_results(config: &Config) -> Option<String> {
    let service = config.service.filter(|it| it.methods.iter().all(|method| !method.keyed))?;
    let replica = config.replicas.iter().find(|replica| replica.results.is_some())?;
    Some(format!(
        "replica {} has results, but {:?} has no method that is keyed: declare those so whose results its \
         store keeps, or leave results out",
        replica.id, service.name
    ))
}

/// Of no deadline what is to be kept back is kept back.
fn all_reserved(config: &Config) -> Option<String> {
    let deadlines = config.methods.iter().map(|(_, of)| of.deadline);
    let longest: Duration = deadlines.max().unwrap_or_else(|| MethodConfig::default().deadline);
    let reserve = config.core.reserve;
    (reserve >= longest).then(|| {
        format!(
            "reserve is {reserve:?}, but no deadline is longer than {longest:?}: half of each is kept back, \
             and no more; shorten reserve, or lengthen the deadlines"
        )
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use bowline_protocol::ServiceInfo;

    use super::*;
    use crate::core::{Limits, Percentile, TiePolicy};
    use crate::io::{Canary, Replica};

    const METHODS: &[MethodInfo] = &[
        MethodInfo::new(Method(1), "read").idempotent().duplicable(1 << 10),
        MethodInfo::new(Method(2), "scan").idempotent(),
        MethodInfo::new(Method(3), "pay").keyed().duplicable(1 << 10),
        MethodInfo::new(Method(4), "add").duplicable(1 << 10),
    ];

    fn config(stores: [&str; 3]) -> Config {
        let replica = |(id, store): (u16, &str)| {
            Replica::new(id, format!("10.0.0.{id}:7000").parse().unwrap()).results(store)
        };
        Config::new((1..).zip(stores).map(replica)).service(ServiceInfo::new("bank", METHODS))
    }

    fn of(policy: Policy) -> MethodConfig {
        MethodConfig { policy, ..MethodConfig::default() }
    }

    /// All that is told of these settings of a method.
    fn told(config: Config, method: u16, of: MethodConfig) -> Vec<String> {
        all(&config.method(Method(method), of)).collect()
    }

    #[test]
    fn second_copies_that_no_call_of_a_method_can_have_are_named_with_the_cure() {
        let apart = || config(["a", "b", "c"]);
        for (method, cure) in [
            (2, "does not declare it duplicable: declare it so, or its policy none"),
            (3, "be told of it (their server's `shared_results`), or its policy none"),
            (4, "neither idempotent nor keyed: declare what it is, or its policy none"),
        ] {
            for policy in [Policy::tied(), Policy::hedged()] {
                let found = told(apart(), method, of(policy));
                assert!(found.len() == 1 && found[0].ends_with(cure), "{found:?}");
            }
            assert_eq!(told(apart(), method, of(Policy::None)), Vec::<String>::new());
        }
        let canary = Some(Canary { policy: Policy::tied(), share: 0.5 });
        let found = told(apart(), 3, MethodConfig { canary, ..MethodConfig::default() });
        assert!(found[0].starts_with("method 3 (\"pay\"): its policy is tied, but "), "{found:?}");
        let limits = Limits { attempts: 1, ..Limits::default() };
        let found = told(apart(), 1, MethodConfig { limits, ..of(Policy::tied()) });
        assert!(found[0].contains("max_attempts is 1: allow 2 at least"), "{found:?}");
    }

    #[test]
    fn nothing_is_told_of_second_copies_that_some_call_may_have() {
        let nothing = Vec::<String>::new();
        for method in [1, 3] {
            let both = Policy::TiedThenHedged(TiePolicy::default(), HedgePolicy::default());
            assert_eq!(told(config(["a", "b", "a"]), method, of(both)), nothing);
        }
        let mut set = config(["a", "b", "c"]);
        set.replicas.truncate(1);
        set.replicas[0].set = Some("_bank._tcp.x.".to_owned());
        assert_eq!(told(set, 3, of(Policy::tied())), nothing);
        let unknown = Config { service: None, ..config(["a", "b", "c"]) };
        assert_eq!(told(unknown, 3, of(Policy::tied())), nothing, "its calls say what they are");
    }

    #[test]
    fn a_store_of_results_of_a_service_that_keeps_none_is_named_with_the_cure() {
        let mut config = config(["a", "a", "a"]).service(ServiceInfo::new("bank", &METHODS[..2]));
        let found: Vec<_> = all(&config).collect();
        assert!(
            found.len() == 1 && found[0].starts_with("replica 1 has results, but "),
            "{found:?}"
        );
        config.replicas.iter_mut().for_each(|replica| replica.results = None);
        assert_eq!(all(&config).count(), 0);
    }

    #[test]
    fn a_hedge_that_comes_after_the_deadline_is_named_with_the_cure() {
        let shared = || config(["a", "a", "a"]);
        let ms = Duration::from_millis;
        let percentile = Delay::Percentile(Percentile { min: ms(20), ..Percentile::default() });
        for (delay, setting) in [(Delay::Fixed(ms(20)), "delay"), (percentile, "min")] {
            let hedge = HedgePolicy { delay, least_useful: ms(5), ..HedgePolicy::default() };
            let within = |deadline| {
                let of = of(Policy::Hedged(hedge));
                told(shared(), 1, MethodConfig { deadline, ..of })
            };
            let expected = format!(
                "method 1 (\"read\"): hedge.{setting} is 20ms, and hedge.least_useful 5ms, but its deadline \
                 25ms: only calls that bring a longer one are hedged; shorten the former, or lengthen its \
                 deadline"
            );
            assert_eq!((within(ms(25)), within(ms(26))), (vec![expected], Vec::new()));
        }
    }

    #[test]
    fn a_reserve_that_is_longer_than_all_deadlines_is_named_with_the_cure() {
        let with = |reserve: Duration| {
            let mut config = config(["a", "a", "a"]);
            config.core.reserve = reserve;
            config
        };
        let ms = Duration::from_millis;
        let told_by_default: Vec<_> = all(&with(ms(1000))).collect();
        let expected = "reserve is 1s, but no deadline is longer than 1s: half of each is kept back, and no \
                        more; shorten reserve, or lengthen the deadlines";
        assert_eq!((told_by_default, all(&with(ms(999))).count()), (vec![expected.to_owned()], 0));
        let short = MethodConfig { deadline: ms(50), ..MethodConfig::default() };
        assert_eq!(told(with(ms(49)), 1, short.clone()), Vec::<String>::new());
        assert!(told(with(ms(50)), 1, short)[0].starts_with("reserve is 50ms, but "));
    }
}
