//! `margrave devices` and `--device`, with cards and without.

use crate::common::{Sandbox, command, finished, heart, margrave};

#[test]
fn the_processor_is_always_listed() {
    let ran = margrave(&["devices"]).exits(0);
    assert!(ran.out.contains("cpu") && ran.out.contains("threads") && ran.out.contains("auto"), "{}", ran.out);
    let object = margrave(&["devices", "--json", "--threads", "3"]).exits(0).json();
    assert_eq!((&object["devices"][0]["device"], &object["devices"][0]["threads"]), (&"cpu".into(), &3.into()));
    // A card, or a reason why there is none.
    let cards = object["devices"].as_array().expect("a list").len() - 1;
    assert_eq!(cards > 0, object["cuda_problem"].is_null() || object["auto"] == "cpu" && cards > 0, "{object}");
}

#[test]
fn a_card_that_is_not_there_is_an_error_that_says_what_to_do() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("no.model");
    for device in ["cuda", "cuda:5"] {
        let mut hidden = command(&["train", &heart(), "--device", device, "-o", &model]);
        // No driver shows a card then.
        hidden.env("CUDA_VISIBLE_DEVICES", "-1");
        let ran = finished(hidden).exits(2);
        assert!(ran.err.contains(&format!("--device {device}: ")), "{}", ran.err);
        assert!(ran.err.contains("margrave devices") && ran.err.contains("--device cpu"), "{}", ran.err);
        assert!(!std::path::Path::new(&model).exists());
    }
}

#[test]
fn small_data_is_trained_on_the_processor_and_the_plan_says_why() {
    let object = margrave(&["train", &heart(), "--explain", "--json"]).exits(0).json();
    assert!(object["no_card"].as_str().is_some_and(|why| why.contains("270 rows")), "{object}");
    let object = margrave(&["train", &heart(), "--explain", "--json", "--device", "cpu"]).exits(0).json();
    assert!(object["no_card"].is_null() && object["card"].is_null(), "{object}");
}
