//! The simulated world: the real machines of clients and servers under virtual time, and the
//! checkers that watch them.
#![forbid(unsafe_code)]

pub mod check;
pub mod exhaust;
pub mod judge;
pub mod kernel;
pub mod mutations;
pub mod swarm;
pub mod theory;
pub mod world;

/// The README's programs compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    use std::fs::read_to_string;

    #[test]
    fn the_manifest_that_the_readme_shows_names_crates_and_features_that_there_are() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let readme = read_to_string(format!("{root}/README.md")).unwrap();
        let (_, shown) = readme.split_once("```toml\n[dependencies]\n").expect("a manifest");
        let (shown, _) = shown.split_once("```").unwrap();
        let ours = shown.lines().filter(|line| line.starts_with("bowline-"));
        let mut crates = 0;
        for line in ours {
            let (name, rest) = line.split_once(" = { path = \"../bowline/").expect(line);
            let (folder, rest) = rest.split_once('"').unwrap();
            let manifest = read_to_string(format!("{root}/{folder}/Cargo.toml")).expect(line);
            assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{line}");
            let features = rest.split_once("features = [").map_or("", |(_, list)| list);
            for feature in
                features.split(']').next().unwrap().split(", ").filter(|it| !it.is_empty())
            {
                let is_there =
                    |it: &str| it.starts_with(&format!("{} = [", feature.trim_matches('"')));
                assert!(manifest.lines().any(is_there), "{line}: {feature}");
            }
            crates += 1;
        }
        assert_eq!(crates, 4, "{shown}");
    }
}
