//! A store that lasts as long as its process.

use std::collections::BTreeMap;
use std::vec::Vec;

use super::{Batch, Entry, Space, Store, StoreError};

/// Keeps all in memory: for tests, and where the death of the process may forget what was done.
#[derive(Debug, Default)]
pub struct Memory {
    kept: [BTreeMap<Vec<u8>, Vec<u8>>; 3],
}

impl Store for Memory {
    type Batch<'a> = Changes<'a>;

    fn begin(&mut self) -> Result<Changes<'_>, StoreError> {
        Ok(Changes { memory: self, undo: Vec::new() })
    }
}

/// Changes are made at once, and undone if they are not committed.
#[derive(Debug)]
pub struct Changes<'a> {
    memory: &'a mut Memory,
    /// What was there before each.
    undo: Vec<(Space, Vec<u8>, Option<Vec<u8>>)>,
}

impl Changes<'_> {
    const fn space(&self, space: Space) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.memory.kept[space as usize]
    }

    fn set(&mut self, space: Space, key: &[u8], value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let kept = &mut self.memory.kept[space as usize];
        match value {
            Some(value) => kept.insert(key.to_vec(), value),
            None => kept.remove(key),
        }
    }
}

fn owned((key, value): (&Vec<u8>, &Vec<u8>)) -> Entry {
    (key.clone(), value.clone())
}

impl Batch for Changes<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.space(space).get(key).cloned())
    }

    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let before = self.set(space, key, Some(value.to_vec()));
        self.undo.push((space, key.to_vec(), before));
        Ok(())
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<(), StoreError> {
        let before = self.set(space, key, None);
        self.undo.push((space, key.to_vec(), before));
        Ok(())
    }

    fn first(&self, space: Space) -> Result<Option<Entry>, StoreError> {
        Ok(self.space(space).first_key_value().map(owned))
    }

    fn last(&self, space: Space) -> Result<Option<Entry>, StoreError> {
        Ok(self.space(space).last_key_value().map(owned))
    }

    fn commit(mut self) -> Result<(), StoreError> {
        self.undo.clear();
        Ok(())
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        while let Some((space, key, before)) = self.undo.pop() {
            self.set(space, &key, before);
        }
    }
}
