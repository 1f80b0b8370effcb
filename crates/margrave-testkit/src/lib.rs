//! Naive references and seeded generators.
