//! A store that lasts as long as its process.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::{Batch, Entry, Reader, Space, Store, StoreError, View};

/// Keeps all in memory: for tests, and where the death of the process may forget what was done.
#[derive(Debug, Default)]
pub struct Memory {
    kept: Arc<Mutex<Kept>>,
}

type Kept = [BTreeMap<Vec<u8>, Vec<u8>>; 3];

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    type Batch<'a> = Changes<'a>;
    type Reader = Memory;

    fn begin(&mut self) -> Result<Changes<'_>, StoreError> {
        Ok(Changes { kept: self.lock(), undo: Vec::new() })
    }

    fn reader(&self) -> Memory {
        Memory { kept: self.kept.clone() }
    }
}

/// Waits for the batch that is under way.
impl Reader for Memory {
    fn read(&mut self, read: &mut dyn FnMut(&dyn View)) -> Result<(), StoreError> {
        read(&*self.lock());
        Ok(())
    }
}

fn owned((key, value): (&Vec<u8>, &Vec<u8>)) -> Entry {
    (key.clone(), value.clone())
}

impl View for Kept {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self[space as usize].get(key).cloned())
    }

    fn next(&self, space: Space, from: Bound<&[u8]>) -> Result<Option<Entry>, StoreError> {
        let mut rest = self[space as usize].range::<[u8], _>((from, Bound::Unbounded));
        Ok(rest.next().map(owned))
    }
}

/// Changes are made at once, and undone if they are not committed.
#[derive(Debug)]
pub struct Changes<'a> {
    kept: MutexGuard<'a, Kept>,
    /// What was there before each.
    undo: Vec<(Space, Vec<u8>, Option<Vec<u8>>)>,
}

impl Changes<'_> {
    fn set(&mut self, space: Space, key: &[u8], value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let kept = &mut self.kept[space as usize];
        match value {
            Some(value) => kept.insert(key.to_vec(), value),
            None => kept.remove(key),
        }
    }
}

impl View for Changes<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        View::get(&*self.kept, space, key)
    }

    fn next(&self, space: Space, from: Bound<&[u8]>) -> Result<Option<Entry>, StoreError> {
        View::next(&*self.kept, space, from)
    }
}

impl Batch for Changes<'_> {
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

    fn last(&self, space: Space) -> Result<Option<Entry>, StoreError> {
        Ok(self.kept[space as usize].last_key_value().map(owned))
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
