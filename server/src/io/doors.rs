//! Who may connect: so many in all, so many from one address, and some places kept for peers.
//!
//! An address proves nothing about who is there, but it costs something to have many. So nobody takes
//! all places from one of them, and the addresses of configured peers, whose connections carry
//! cancels, always find some. Where a peer is configured by name, that are those to which it led last.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::vec;
use std::vec::Vec;

/// Why somebody is turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// All places are taken that are not kept for others.
    Full,
    /// That address has as many as one may.
    Address,
}

impl Refusal {
    pub(super) const fn why(self) -> &'static [u8] {
        match self {
            Refusal::Full => b"this server has as many connections as it may",
            Refusal::Address => b"this address has as many connections here as one may",
        }
    }
}

pub(super) struct Doors {
    /// Places for those that are no peers.
    places: usize,
    per_address: u32,
    /// The addresses of each.
    peers: Vec<Vec<IpAddr>>,
    /// Who is here, by the place of the connection's name.
    inside: Vec<Option<IpAddr>>,
    here: usize,
    by_address: BTreeMap<IpAddr, u32>,
}

impl Doors {
    /// Of `places` so many are `reserved` for so many peers, if there are any.
    pub(super) fn new(places: u32, reserved: u32, per_address: u32, peers: usize) -> Doors {
        let peers: Vec<Vec<IpAddr>> = vec![Vec::new(); peers];
        let reserved = if peers.is_empty() { 0 } else { reserved };
        Doors {
            places: places.saturating_sub(reserved) as usize,
            per_address,
            peers,
            inside: Vec::new(),
            here: 0,
            by_address: BTreeMap::new(),
        }
    }

    /// A peer has these addresses, and no others any more.
    pub(super) fn know_peer(&mut self, peer: usize, addresses: impl Iterator<Item = IpAddr>) {
        self.peers[peer] = addresses.map(|address| address.to_canonical()).collect();
    }

    /// Whether one more may come from there.
    pub(super) fn ask(&self, from: IpAddr) -> Result<(), Refusal> {
        let from = from.to_canonical();
        if self.peers.iter().any(|peer| peer.contains(&from)) {
            return Ok(());
        }
        if self.by_address.get(&from).is_some_and(|here| *here >= self.per_address) {
            return Err(Refusal::Address);
        }
        if self.here >= self.places { Err(Refusal::Full) } else { Ok(()) }
    }

    /// One came in.
    pub(super) fn enter(&mut self, place: usize, from: IpAddr) {
        let from = from.to_canonical();
        if self.inside.len() <= place {
            self.inside.resize(place + 1, None);
        }
        self.inside[place] = Some(from);
        self.here += 1;
        *self.by_address.entry(from).or_default() += 1;
    }

    /// One has gone.
    pub(super) fn leave(&mut self, place: usize) {
        let Some(from) = self.inside.get_mut(place).and_then(Option::take) else { return };
        self.here -= 1;
        if let Some(here) = self.by_address.get_mut(&from) {
            *here -= 1;
            if *here == 0 {
                self.by_address.remove(&from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: [u8; 4] = [10, 0, 0, 1];
    const OTHER: [u8; 4] = [10, 0, 0, 2];
    const THIRD: [u8; 4] = [10, 0, 0, 3];

    /// Four places, one of them kept for the peer, two for each address.
    fn doors() -> Doors {
        let mut doors = Doors::new(4, 1, 2, 1);
        doors.know_peer(0, [PEER.into()].into_iter());
        doors
    }

    fn come(doors: &mut Doors, place: usize, from: [u8; 4]) -> Result<(), Refusal> {
        doors.ask(from.into())?;
        doors.enter(place, from.into());
        Ok(())
    }

    #[test]
    fn one_address_takes_so_many_places_and_no_more_until_one_of_its_own_goes() {
        let mut doors = doors();
        assert_eq!(come(&mut doors, 0, OTHER), Ok(()));
        assert_eq!(come(&mut doors, 1, OTHER), Ok(()));
        assert_eq!(come(&mut doors, 2, OTHER), Err(Refusal::Address));
        assert_eq!(come(&mut doors, 2, THIRD), Ok(()));
        doors.leave(0);
        assert_eq!(come(&mut doors, 0, OTHER), Ok(()));
    }

    #[test]
    fn a_place_is_kept_for_the_peer_whatever_others_take() {
        let mut doors = doors();
        for (place, from) in [OTHER, OTHER, THIRD].into_iter().enumerate() {
            assert_eq!(come(&mut doors, place, from), Ok(()));
        }
        assert_eq!(come(&mut doors, 3, THIRD), Err(Refusal::Full));
        assert_eq!(come(&mut doors, 3, PEER), Ok(()));
    }

    #[test]
    fn a_peer_that_has_moved_has_its_places_at_its_new_address_alone() {
        let mut doors = doors();
        for (place, from) in [OTHER, OTHER, THIRD].into_iter().enumerate() {
            assert_eq!(come(&mut doors, place, from), Ok(()));
        }
        doors.know_peer(0, [THIRD.into()].into_iter());
        assert_eq!(come(&mut doors, 3, PEER), Err(Refusal::Full));
        assert_eq!(come(&mut doors, 3, THIRD), Ok(()));
    }

    #[test]
    fn an_address_is_the_same_in_both_families() {
        let mut doors = doors();
        doors.enter(0, OTHER.into());
        let mapped = std::net::Ipv4Addr::from(OTHER).to_ipv6_mapped();
        doors.enter(1, mapped.into());
        assert_eq!(doors.ask(OTHER.into()), Err(Refusal::Address));
    }

    #[test]
    fn nothing_is_left_of_who_has_gone() {
        let mut doors = doors();
        come(&mut doors, 7, OTHER).unwrap();
        doors.leave(7);
        doors.leave(7);
        assert_eq!((doors.here, doors.by_address.len()), (0, 0));
    }
}
