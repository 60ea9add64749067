//! What can't be is refused at the start, by name.

use super::*;
use crate::core::ConfigError;

fn error(config: Config) -> ConfigError {
    match Core::<u64>::new(config) {
        Err(error) => error,
        Ok(_) => panic!("it was accepted"),
    }
}

#[test]
fn limits_of_zero_are_refused_by_name() {
    assert_eq!(error(Config { slots: 0, ..config() }), ConfigError::Zero("slots"));
    let no_queue = Config { queue_requests: 0, ..config() };
    assert_eq!(error(no_queue), ConfigError::Zero("queue_requests"));
    assert_eq!(error(Config { queue_bytes: 0, ..config() }), ConfigError::Zero("queue_bytes"));
    assert_eq!(error(Config { connections: 0, ..config() }), ConfigError::Zero("connections"));
}

#[test]
fn limits_beyond_what_can_be_counted_are_refused() {
    let config = Config { tombstones: u32::MAX, ..config() };
    assert!(matches!(error(config), ConfigError::TooMany { name: "tombstones", .. }));
}

#[test]
fn a_service_needs_methods_each_with_one_rule() {
    assert_eq!(error(Config { methods: vec![], ..config() }), ConfigError::NoMethods);
    let twice = vec![(READ, MethodRule::idempotent()), (READ, MethodRule::once())];
    assert_eq!(error(Config { methods: twice, ..config() }), ConfigError::MethodTwice(READ));
}
