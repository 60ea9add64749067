//! What is said in vain of a server's results. Nothing breaks by it: so it is told, with the cure, and not
//! refused.

use std::string::String;
use std::vec::Vec;

use bowline_protocol::{MethodInfo, ServiceInfo};

/// Says what is set in vain.
pub(super) fn tell(service: &ServiceInfo, shared_results: bool) {
    all(service, shared_results).iter().for_each(|it| tracing::warn!("{it}"));
}

fn all(service: &ServiceInfo, shared_results: bool) -> Vec<String> {
    let methods = service.methods.iter();
    match shared_results {
        true if methods.clone().all(|method| !method.keyed) => {
            let said = "shared_results is set, but no method is keyed: declare those so whose results \
                        are shared, or leave it out";
            [String::from(said)].into()
        }
        true => Vec::new(),
        false => methods.filter_map(alone).collect(),
    }
}

/// Its copies are refused by a server that shares no results.
fn alone(method: &MethodInfo) -> Option<String> {
    let MethodInfo { number, name, idempotent, keyed, duplicable, .. } = method;
    (*keyed && !idempotent && duplicable.is_some()).then(|| {
        format!(
            "method {} ({name:?}) is duplicable, but its tied and hedged copies are refused, as only a key \
             protects it, and this server is not told that replicas share its results: set \
             `Builder::shared_results` if they do, or do not declare it duplicable",
            number.0
        )
    })
}

#[cfg(test)]
mod tests {
    use bowline_protocol::Method;

    use super::*;

    const READ: MethodInfo = MethodInfo::new(Method(1), "read").idempotent().duplicable(9);
    const PAY: MethodInfo = MethodInfo::new(Method(2), "pay").keyed().duplicable(9);
    const ASK: MethodInfo = MethodInfo::new(Method(3), "ask").keyed();

    fn told(methods: &'static [MethodInfo], shared: bool) -> Vec<String> {
        all(&ServiceInfo::new("bank", methods), shared)
    }

    #[test]
    fn what_is_duplicable_by_a_key_where_no_results_are_shared_is_named_with_the_cure() {
        let found = told(const { &[READ, PAY, ASK] }, false);
        assert!(found.len() == 1 && found[0].starts_with("method 2 (\"pay\")"), "{found:?}");
        assert!(found[0].contains("set `Builder::shared_results` if they do"), "{found:?}");
        assert_eq!(told(const { &[READ, PAY, ASK] }, true), Vec::<String>::new());
        assert_eq!(told(const { &[READ, ASK] }, false), Vec::<String>::new());
    }

    #[test]
    fn results_that_are_shared_of_no_method_are_named_with_the_cure() {
        let found = told(const { &[READ] }, true);
        assert!(found[0].contains("no method is keyed: declare"), "{found:?}");
    }
}
