//! A configuration that changes while clients use it.
//!
//! The hot path does not look at it at all: every core has its own copy of what it needs, and a
//! task that waits here for the next one and puts it in place between two calls.

use std::fmt;
use std::mem;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

use bowline_protocol::ServiceInfo;
use tracing::warn;

use super::config::{Config, ConnectError};
use super::vain;
use crate::core;

/// The configuration that some clients have in common, on any number of cores: a handle that can
/// be cloned and sent.
///
/// ```
/// use bowline_client::core::Policy;
/// use bowline_client::io::{Live, MethodConfig};
/// use bowline_client::{Config, Replica};
/// use bowline_protocol::Method;
///
/// let config = Config::new([Replica::new(1, "10.0.0.1:7000".parse()?)]);
/// let live = Live::new(config)?;
/// // Every `Client::connect(live.client_config())` follows what is set from now on.
/// let tied = MethodConfig { policy: Policy::tied(), idempotent: true, ..MethodConfig::default() };
/// live.set(live.config().as_ref().clone().method(Method(1), tied))?;
/// // No second copies any more, on all cores, as of now.
/// live.config().core.switch.turn_off();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Live {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    config: Arc<Config>,
    /// The one that it began with, which is what those have of it that follow no other.
    first: Arc<Config>,
    /// What of that is set otherwise now, and was told.
    unfollowed: Vec<Unfollowed>,
    /// How often it was set.
    generation: u64,
    /// Tasks that wait for the next. At most one a core and client: each is taken out as it is woken.
    wakers: Vec<Waker>,
}

impl Live {
    /// Begins with this configuration.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: a setting out of its range, no replica, or a method that is set to be idempotent
    /// and is not declared so by its service. What is set for a method that the
    /// service does not have is none, here and in [`Live::set`]: a file may be ahead of some of the
    /// programs that read it. It is logged, and never counts. So is whatever else is set in vain: second
    /// copies that no call can have, a hedge or a reserve beyond the deadline.
    pub fn new(mut config: Config) -> Result<Live, ConnectError> {
        config.check_settings()?;
        vain::tell(&config, None);
        config.live = None;
        let config = Arc::new(config);
        let (first, unfollowed, wakers) = (config.clone(), Vec::new(), Vec::new());
        let shared = Shared { config, first, unfollowed, generation: 0, wakers };
        Ok(Live { shared: Arc::new(Mutex::new(shared)) })
    }

    /// Puts another configuration in place: replicas, methods, whether there are second copies, the
    /// budgets' settings, and of the machine's what [`Calls::follow`](crate::core::Calls::follow)
    /// takes over (picks, ejection, warm-up, retries, patience). Clients follow it within a turn of
    /// their loops. All else (`max_reply` and other limits, links) stays as it was when they connected;
    /// what differs of that from what this began with is logged as a warning, once.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] as for [`Live::new`]; nothing has changed then.
    pub fn set(&self, mut config: Config) -> Result<(), ConnectError> {
        config.check_settings()?;
        // It would hold itself for ever: one that was made for a client names what is set here.
        config.live = None;
        let mut shared = self.lock();
        let old = shared.config.clone();
        // One that was made from the old has its switch, which may just be being turned.
        if !Arc::ptr_eq(&old.core.switch, &config.core.switch) {
            old.core.switch.set(config.core.switch.is_on());
            config.core.switch = old.core.switch.clone();
        }
        // A budget is one for all cores, and what is in it stays there.
        old.core.budget.take_settings(&config.core.budget);
        config.core.budget = old.core.budget.clone();
        for (method, of) in &mut config.methods {
            let same =
                |(known, had): &&(_, super::MethodConfig)| known == method && had.class == of.class;
            let had = old.methods.iter().find(same).and_then(|(_, had)| had.budget.as_ref());
            if let (Some(had), Some(budget)) = (had, &mut of.budget) {
                had.take_settings(budget);
                *budget = had.clone();
            }
        }
        let config = Arc::new(config);
        shared.config = config.clone();
        shared.generation += 1;
        let wakers = mem::take(&mut shared.wakers);
        let unfollowed = unfollowed(&shared.first, &config);
        let told = mem::replace(&mut shared.unfollowed, unfollowed.clone());
        drop(shared);
        // A log may block, and stop nobody from following.
        wakers.into_iter().for_each(Waker::wake);
        vain::tell(&config, Some(&old));
        unfollowed.iter().filter(|it| !told.contains(it)).for_each(tell_unfollowed);
        Ok(())
    }

    /// The configuration as it is now.
    pub fn config(&self) -> Arc<Config> {
        self.lock().config.clone()
    }

    /// The same, for a [`Client`](super::Client) or a [`Remote`](super::Remote) that is to follow it.
    pub fn client_config(&self) -> Config {
        Config { live: Some(self.clone()), ..self.config().as_ref().clone() }
    }

    /// How often it was set.
    pub fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// The configuration once it is another than the one of that generation.
    pub(super) fn poll_changed(
        &self,
        seen: u64,
        context: &mut Context<'_>,
    ) -> Poll<(u64, Arc<Config>)> {
        let mut shared = self.lock();
        if shared.generation != seen {
            return Poll::Ready((shared.generation, shared.config.clone()));
        }
        if !shared.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            shared.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// The configuration is whole whatever happened to a thread that held the lock.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is set otherwise than at first though no client that is connected follows it: its name, and
/// both values.
type Unfollowed = (&'static str, String, String);

fn tell_unfollowed((key, old, new): &Unfollowed) {
    warn!(
        "{key} is {new} now and was {old}: clients that are connected go on with what they had; \
         restart the program for it to count"
    );
}

/// Each setting that only counts as a client connects, if it differs.
fn unfollowed(old: &Config, new: &Config) -> Vec<Unfollowed> {
    // Whoever adds a setting says here whether it is followed.
    let Config {
        replicas: _,
        zone: _,
        region: _,
        methods: _,
        live: _,
        core,
        link,
        dial,
        backoff,
        connect_wait,
        max_reply,
        reply_budget,
        payload_checksums,
        service,
    } = new;
    let core::Config {
        reserve: _,
        watch: _,
        patience: _,
        retry: _,
        pick: _,
        load_lifetime: _,
        eject: _,
        warm_up: _,
        budget: _,
        switch: _,
        max_calls,
        max_payload,
        max_backlog,
        latency_window,
        max_methods,
        labels,
        seed,
    } = core;
    let name = |service: &Option<ServiceInfo>| service.map(|service| service.name);
    let had = &old.core;
    let all: [(&str, &dyn fmt::Debug, &dyn fmt::Debug); 15] = [
        ("link", &old.link, link),
        ("dial", &old.dial, dial),
        ("backoff", &old.backoff, backoff),
        ("connect_wait", &old.connect_wait, connect_wait),
        ("max_reply", &old.max_reply, max_reply),
        ("reply_budget", &old.reply_budget, reply_budget),
        ("payload_checksums", &old.payload_checksums, payload_checksums),
        ("service", &name(&old.service), &name(service)),
        ("core.max_calls", &had.max_calls, max_calls),
        ("core.max_payload", &had.max_payload, max_payload),
        ("core.max_backlog", &had.max_backlog, max_backlog),
        ("core.latency_window", &had.latency_window, latency_window),
        ("core.max_methods", &had.max_methods, max_methods),
        ("core.labels", &had.labels, labels),
        ("core.seed", &had.seed, seed),
    ];
    let written = all.map(|(key, old, new)| (key, format!("{old:?}"), format!("{new:?}")));
    written.into_iter().filter(|(_, old, new)| old != new).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_file_may_say_only_the_largest_reply_and_the_labels_are_not_followed() {
        let replica = "[[replica]]\nid = 1\naddress = \"127.0.0.1:7000\"\n";
        let read = |text: &str| Config::from_toml(&format!("{text}{replica}")).unwrap();
        let others = "second_copies = false\nzone = \"a\"\nregion = \"b\"\npick = \"first\"\n\
                      warm_up = \"1s\"\nload_lifetime = \"1s\"\nreserve = \"1ms\"\npatience = \"9s\"\n\
                      retry = { most = 1 }\neject = { after = 9 }\nbudget = { burst = 9 }\n\
                      [[method]]\nid = 1\nidempotent = true\n";
        assert_eq!(unfollowed(&read(""), &read(others)), []);
        let found = unfollowed(&read(""), &read("max_reply = 4_194_304\n"));
        assert_eq!(found, [("max_reply", "1048576".to_owned(), "4194304".to_owned())]);
        let found = unfollowed(&read(""), &read("labels = [\"hit\"]\n"));
        assert_eq!(found.iter().map(|(key, ..)| *key).collect::<Vec<_>>(), ["core.labels"]);
    }

    #[test]
    fn what_a_program_sets_and_nobody_follows_is_found_by_its_name() {
        let old = Config::new([]);
        let mut new = Config { dial: 2 * old.dial, payload_checksums: false, ..old.clone() };
        new.core.max_calls = 7;
        new.core.patience *= 2;
        let found: Vec<_> = unfollowed(&old, &new).into_iter().map(|(key, ..)| key).collect();
        assert_eq!(found, ["dial", "payload_checksums", "core.max_calls"]);
        assert_eq!(unfollowed(&old, &old.clone()), []);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::future::poll_fn;

    use bowline_protocol::Method;
    use loom::future::block_on;
    use loom::thread;

    use super::*;
    use crate::core::{Budget, BudgetConfig, Token};
    use crate::io::{MethodConfig, Replica};

    fn config() -> Config {
        Config::new([Replica::new(1, "10.0.0.1:7000".parse().unwrap())])
    }

    /// A change that is slept over shows as a deadlock, which loom finds.
    #[test]
    fn who_waits_sees_every_change_or_a_later_one_and_each_whole() {
        loom::model(|| {
            let live = Live::new(config()).unwrap();
            let setting = [1, 2].map(|value| {
                let live = live.clone();
                thread::spawn(move || {
                    live.set(Config { max_reply: value, reply_budget: value as usize, ..config() })
                })
            });
            let mut seen = 0;
            let mut last = 0;
            while seen < 2 {
                let (generation, config) =
                    block_on(poll_fn(|context| live.poll_changed(seen, context)));
                assert!(generation > seen);
                assert_eq!(config.max_reply as usize, config.reply_budget);
                (seen, last) = (generation, config.max_reply);
            }
            assert_eq!((live.generation(), live.config().max_reply), (2, last));
            setting.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
    }

    #[test]
    fn a_switch_that_is_turned_off_while_the_same_configuration_is_changed_stays_off() {
        loom::model(|| {
            let live = Live::new(config()).unwrap();
            let setting = thread::spawn({
                let live = live.clone();
                move || {
                    let changed = live.config().as_ref().clone();
                    live.set(changed.method(Method(1), MethodConfig::default())).unwrap();
                }
            });
            let switch = live.config().core.switch.clone();
            switch.turn_off();
            setting.join().unwrap();
            assert!(!live.config().core.switch.is_on());
        });
    }

    #[test]
    fn a_token_that_is_out_while_the_budget_changes_comes_back_to_it() {
        loom::model(|| {
            let with = |burst| {
                let budget = BudgetConfig { burst, per_second: 0.0, ..BudgetConfig::default() };
                let mut config = config();
                config.core.budget = Arc::new(Budget::new(budget).unwrap());
                config
            };
            let live = Live::new(with(1)).unwrap();
            let setting = thread::spawn({
                let live = live.clone();
                move || live.set(with(2)).unwrap()
            });
            let budget = live.config().core.budget.clone();
            budget.reserve(Token::Paid).unwrap();
            budget.settle(1, 0, 0);
            setting.join().unwrap();
            let budget = live.config().core.budget.clone();
            assert_eq!((budget.level(), budget.outstanding()), (1, 0));
        });
    }
}
