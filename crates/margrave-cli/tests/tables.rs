//! Tables as they are: missing values, columns to leave out, unknown words, dates, ordered words, and what is said about them.

use std::path::Path;

use crate::common::{Output, Sandbox, heart, margrave, number, text};

fn bad(args: &[&str], named: &[&str], written: &str) {
    let ran: Output = margrave(args).exits(2);
    named.iter().for_each(|part| assert!(ran.err.contains(part), "{args:?}: no {part:?} in {}", ran.err));
    assert!(!Path::new(written).exists(), "{args:?} wrote a file");
}

/// Two classes by age, with a hole in each feature.
const PEOPLE: &str = "\
age,colour,answer
20,red,no
22,blue,no
,red,no
25,NA,no
60,blue,yes
65,green,yes
61,blue,yes
?,blue,yes
";

fn people(sandbox: &Sandbox) -> String {
    sandbox.file("people.csv", PEOPLE)
}

#[test]
fn missing_values_are_refused_with_the_remedy() {
    let sandbox = Sandbox::new();
    let (data, model) = (people(&sandbox), sandbox.path("m.model"));
    bad(
        &["train", &data, "-o", &model],
        &["people.csv, line 4, column 1 (`age`)", "empty", "--missing mean, median, indicator or row"],
        &model,
    );
    bad(&["train", &data, "-o", &model, "--missing", "zero"], &["--missing", "refuse, mean, median"], &model);
    bad(&["train", &heart(), "-o", &model, "--missing", "mean"], &["--missing", "leave the option out"], &model);
    bad(&["tune", &data, "-o", &model], &["--missing mean"], &model);
    // A target has to be known, or its row left out.
    let holes = sandbox.file("t.csv", "a,y\n1,no\n2,yes\n3,\n4,no\n");
    bad(&["train", &holes, "-o", &model, "--missing", "mean"], &["line 4", "--missing row"], &model);
    // Predicting with a model that has not learnt what to do.
    let whole = sandbox.file("whole.csv", "age,colour,answer\n20,red,no\n60,blue,yes\n25,blue,no\n70,red,yes\n");
    sandbox.train(&whole, &[]).exits(0);
    bad(
        &["predict", &model, &data, "-o", &sandbox.path("p.csv")],
        &["line 4", "train with --missing"],
        &sandbox.path("p.csv"),
    );
}

#[test]
fn means_and_medians_are_learnt_in_training() {
    let sandbox = Sandbox::new();
    let (data, model) = (people(&sandbox), sandbox.path("m.model"));
    for (rule, age) in [("mean", 253.0 / 6.0), ("median", 42.5)] {
        let trained = sandbox.train(&data, &["--missing", rule, "--scale", "standard"]).exits(0);
        assert!(
            trained.json()["cautions"][0].as_str().is_some_and(|c| c.contains("2 of 8 values of column 1 (`age`)"))
        );
        margrave(&["verify", &model, &data]).exits(0);
        let scores = |cells: &str| {
            let new = sandbox.file("new.csv", format!("age,colour\n{cells}\n"));
            margrave(&["predict", &model, &new, "--scores", "--json"]).exits(0).json()["scores"][0].clone()
        };
        // The value of the training data, not of the new one.
        assert_eq!(scores(",blue"), scores(&format!("{age},blue")), "{rule}");
        // The most frequent text.
        assert_eq!(scores("30,"), scores("30,blue"), "{rule}");
        assert_ne!(scores(",blue"), scores("30,blue"), "{rule}");
    }
}

#[test]
fn indicators_are_features_of_their_own() {
    let sandbox = Sandbox::new();
    let (data, model) = (people(&sandbox), sandbox.path("m.model"));
    let trained = sandbox.train(&data, &["--missing", "indicator"]).exits(0).json();
    assert_eq!(trained["d"], 6);
    let inspected = margrave(&["inspect", &model, "--json"]).exits(0).json();
    let names = ["age", "age is missing", "colour=blue", "colour=green", "colour=red", "colour is missing"];
    assert_eq!(inspected["features"], serde_json::json!(names));
    margrave(&["verify", &model, &data]).exits(0);
    let scores = |cells: &str| {
        let new = sandbox.file("new.csv", format!("age,colour\n{cells}\n"));
        margrave(&["predict", &model, &new, "--scores", "--json"]).exits(0).json()["scores"][0].clone()
    };
    assert_ne!(scores(",red"), scores(&format!("{},red", 253.0 / 6.0)));
}

#[test]
fn rows_with_missing_values_are_left_out_and_have_no_prediction() {
    let sandbox = Sandbox::new();
    let (data, model, out) = (people(&sandbox), sandbox.path("m.model"), sandbox.path("p.csv"));
    let trained = sandbox.train(&data, &["--missing", "row"]).exits(0);
    assert!(trained.err.contains("3 of 8 rows have a missing value and are left out"), "{}", trained.err);
    assert_eq!(trained.json()["n"], 5);
    margrave(&["verify", &model, &data]).exits(0);
    margrave(&["predict", &model, &data, "-o", &out, "--scores"]).exits(0);
    let lines: Vec<String> = text(&out).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 9);
    assert!(lines[3] == "," && lines[4] == "," && lines[8] == "," && lines[5].starts_with("yes,"), "{lines:?}");
    let object = margrave(&["predict", &model, &data, "--json"]).exits(0).json();
    assert_eq!(
        (object["n"].as_u64(), object["left_out"].as_u64(), number(&object, "accuracy")),
        (Some(8), Some(3), 1.0)
    );
    assert!(object["predictions"][2].is_null() && object["predictions"][4] == "yes");
    let all = sandbox.file("all.csv", "a,b\n,1\n2,\n");
    bad(&["train", &all, "-o", &out, "--missing", "row", "--task", "regress"], &["missing in every row"], "none");
}

#[test]
fn arrays_have_missing_values_too() {
    let sandbox = Sandbox::new();
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    let mut head = "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2), }".to_owned();
    head.extend(std::iter::repeat_n(' ', 117 - head.len()));
    head.push('\n');
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.as_bytes());
    for value in [1.0, 0.0, f64::NAN, 0.0, 5.0, 1.0, 6.0, 1.0f64] {
        bytes.extend(value.to_le_bytes());
    }
    let (data, model) = (sandbox.file("a.npy", bytes), sandbox.path("m.model"));
    bad(&["train", &data, "-o", &model], &["row 2, column 1", "NaN", "--missing mean"], &model);
    sandbox.train(&data, &["--missing", "median"]).exits(0);
    margrave(&["verify", &model, &data]).exits(0);
    assert_eq!(sandbox.train(&data, &["--missing", "row"]).exits(0).json()["n"], 3);
    margrave(&["verify", &model, &data]).exits(0);
}

#[test]
fn columns_are_dropped_by_name_and_number() {
    let sandbox = Sandbox::new();
    let (plain, model) = ("1,5,7,-1\n2,6,7,1\n1.5,5,9,-1\n2.5,6,9,1\n", sandbox.path("m.model"));
    let named = sandbox.file("named.csv", format!("a,b,id,y\n{plain}"));
    let bare = sandbox.file("bare.csv", plain);
    let features = |object: &serde_json::Value| object["features"].clone();
    for args in [["--drop", "id"], ["--drop", "2"], ["--only", "a,b"], ["--only", "0,b"]] {
        sandbox.train(&named, &args).exits(0);
        let inspected = margrave(&["inspect", &model, "--json"]).exits(0).json();
        assert_eq!(features(&inspected), serde_json::json!(["a", "b"]), "{args:?}");
        margrave(&["verify", &model, &named]).exits(0);
        // New data may have the column, another one, or none.
        for new in ["a,b\n1,5\n", "id,b,a\n0,5,1\n", "a,b,id,y\n1,5,7,-1\n"] {
            let new = sandbox.file("new.csv", new);
            assert_eq!(margrave(&["predict", &model, &new, "--json"]).exits(0).json()["predictions"][0], -1.0);
        }
    }
    for args in [["--drop", "2"], ["--drop", "-2"], ["--only", "0,1"]] {
        assert_eq!(sandbox.train(&bare, &args).exits(0).json()["d"], 2);
        margrave(&["verify", &model, &bare]).exits(0);
        for new in ["1,5,7\n", "1,5\n", "1,5,7,-1\n"] {
            let new = sandbox.file("new.csv", new);
            assert_eq!(margrave(&["predict", &model, &new, "--json"]).exits(0).json()["predictions"][0], -1.0);
        }
    }
    // The last column that is left is the target.
    assert_eq!(sandbox.train(&named, &["--drop", "y,id"]).exits(0).json()["classes"], serde_json::json!([5.0, 6.0]));
    std::fs::remove_file(&model).expect("the model is there");
    bad(&["train", &named, "-o", &model, "--drop", "nothing"], &["--drop", "\"a\", \"b\", \"id\", \"y\""], &model);
    bad(&["train", &bare, "-o", &model, "--drop", "4"], &["--drop", "there are 4, numbered 0 to 3"], &model);
    bad(&["train", &named, "-o", &model, "--drop", "y", "--target", "y"], &["column 4 (`y`) is the target"], &model);
    bad(&["train", &named, "-o", &model, "--only", "a,y", "--target", "y"], &["--only", "is the target"], &model);
    bad(&["train", &named, "-o", &model, "--only", "a,a"], &["named twice"], &model);
    bad(&["train", &named, "-o", &model, "--only", "a", "--drop", "b"], &["cannot be used with"], &model);
    bad(&["train", &heart(), "-o", &model, "--drop", "0"], &["--drop", "leave the option out"], &model);
    bad(&["train", &named, "-o", &model, "--drop", "a,b,id"], &["none is left for features"], &model);
}

#[test]
fn unknown_words_are_refused_or_ignored() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    let data = sandbox.file("d.csv", "x,colour,y\n1,red,no\n2,blue,yes\n1,blue,no\n2,red,yes\n");
    let new = sandbox.file("new.csv", "x,colour\n1,green\n2,red\n");
    let out = sandbox.path("p.csv");
    sandbox.train(&data, &[]).exits(0);
    bad(&["predict", &model, &new, "-o", &out], &["line 2, column 2 (`colour`)", "`green`", "--unknown ignore"], &out);
    bad(&["predict", &model, &new, "-o", &out, "--unknown", "maybe"], &["ignore or refuse"], &out);
    let ran = margrave(&["predict", &model, &new, "--unknown", "ignore"]).exits(0);
    assert!(ran.err.contains("column 2 (`colour`) has 1 cells with texts"), "{}", ran.err);
    assert_eq!(ran.out, "prediction\nno\nyes\n");
    // Learnt in training, and overruled.
    sandbox.train(&data, &["--unknown", "ignore"]).exits(0);
    assert_eq!(margrave(&["predict", &model, &new]).exits(0).out, "prediction\nno\nyes\n");
    bad(&["predict", &model, &new, "-o", &out, "--unknown", "refuse"], &["`green`"], &out);
}

#[test]
fn words_with_an_order_become_numbers() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    let data = sandbox.file("d.csv", "size,y\nsmall,1.5\nlarge,3.5\nmedium,2.5\nsmall,1.5\n");
    let args = ["--task", "regress", "--kernel", "linear", "--epsilon", "0.001", "-C", "100"];
    let ordered = [&args[..], &["--ordinal", "size=small,medium,large,huge"]].concat();
    assert_eq!(sandbox.train(&data, &ordered).exits(0).json()["d"], 1);
    margrave(&["verify", &model, &data]).exits(0);
    let new = sandbox.file("new.csv", "size\nhuge\n");
    let huge = margrave(&["predict", &model, &new, "--json"]).exits(0).json()["predictions"][0].as_f64();
    assert!(huge.is_some_and(|v| (v - 4.5).abs() < 0.01), "{huge:?}");
    let new = sandbox.file("new.csv", "size\ntiny\n");
    bad(&["predict", &model, &new], &["`tiny`", "\"small\", \"medium\""], "none");
    std::fs::remove_file(&model).expect("the model is there");
    for (order, named) in [
        ("size=small,large", "`medium`"),
        ("size=small", "LEAST"),
        ("size=small,small", "each once"),
        ("weight=a,b", "\"size\", \"y\""),
        ("y=a,b", "is not a feature"),
    ] {
        bad(&[&["train", &data, "-o", &model, "--ordinal", order], &args[..]].concat(), &[named], &model);
    }
    // Numbers may be ordered words too.
    let grades = sandbox.file("g.csv", "grade,y\n3,1\n1,2\n2,1.5\n");
    sandbox.train(&grades, &[&args[..], &["--ordinal", "grade=3,2,1"]].concat()).exits(0);
    margrave(&["verify", &model, &grades]).exits(0);
}

#[test]
fn dates_are_numbers_parts_or_words() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    let rows = "2024-01-01,no\n2024-01-02,no\n2024-01-03,no\n2024-03-04,yes\n2024-03-05,yes\n2024-03-06,yes\n";
    let data = sandbox.file("d.csv", format!("when,y\n{rows}"));
    for (how, features) in [
        (None, vec!["when"]),
        (Some("number"), vec!["when"]),
        (Some("parts"), vec!["when.year", "when.month", "when.day", "when.weekday"]),
        (Some("text"), vec![]),
    ] {
        let args: Vec<&str> = how.into_iter().flat_map(|how| ["--dates", how]).collect();
        let trained = sandbox.train(&data, &args).exits(0);
        assert_eq!(trained.err.contains("holds dates"), how.is_none() || how == Some("number"), "{}", trained.err);
        let names = margrave(&["inspect", &model, "--json"]).exits(0).json()["features"].clone();
        if features.is_empty() {
            assert_eq!(names.as_array().map(Vec::len), Some(6));
        } else {
            assert_eq!(names, serde_json::json!(features));
        }
        margrave(&["verify", &model, &data]).exits(0);
        if how != Some("text") {
            let new = sandbox.file("new.csv", "when\n2024-01-02\n2024-03-05T12:00:00Z\n");
            assert_eq!(margrave(&["predict", &model, &new]).exits(0).out, "prediction\nno\nyes\n", "{how:?}");
            let new = sandbox.file("new.csv", "when\n05.01.2024\n");
            bad(&["predict", &model, &new], &["line 2", "not an ISO date", "2024-05-17"], "none");
        }
    }
    bad(&["train", &data, "-o", "none", "--dates", "days"], &["number, parts or text"], "none");
}

#[test]
fn names_of_rows_are_noticed() {
    let sandbox = Sandbox::new();
    let row = |i: usize| format!("case-{i},{},{}\n", i % 5, ["no", "yes"][usize::from(i % 5 > 2)]);
    let data = sandbox.file("d.csv", format!("id,x,y\n{}", (0..40).map(row).collect::<String>()));
    let trained = sandbox.train(&data, &[]).exits(0);
    assert!(trained.err.contains("column 1 (`id`) has 40 different texts in 40 rows"), "{}", trained.err);
    assert!(trained.err.contains("consider --drop id"), "{}", trained.err);
    let trained = sandbox.train(&data, &["--drop", "id"]).exits(0);
    assert!(!trained.err.contains("consider"), "{}", trained.err);
    assert_eq!(trained.json()["cautions"], serde_json::json!([]));
}

#[test]
fn many_whole_numbers_and_uneven_scales_are_noticed() {
    let sandbox = Sandbox::new();
    let row = |i: usize| format!("{},{},{}\n", i % 7, 10_000 * (i % 11), i % 30);
    let data = sandbox.file("d.csv", format!("a,income,price\n{}", (0..90).map(row).collect::<String>()));
    let trained = sandbox.train(&data, &[]).exits(0);
    assert!(trained.err.contains("30 different whole numbers"), "{}", trained.err);
    assert!(trained.err.contains("--task regress"), "{}", trained.err);
    assert!(trained.err.contains("feature 2 (income) ranges over"), "{}", trained.err);
    assert!(trained.err.contains("--scale standard"), "{}", trained.err);
    // Days since 1970 beside a small number: γ follows their level.
    let row = |i: usize| format!("{},2024-01-{:02},{}\n", i % 7, i % 28 + 1, i % 2);
    let dated = sandbox.file("when.csv", format!("a,when,y\n{}", (0..40).map(row).collect::<String>()));
    let trained = sandbox.train(&dated, &[]).exits(0);
    assert!(trained.err.contains("feature 2 (when) lies around 19"), "{}", trained.err);
    assert!(!sandbox.train(&dated, &["--gamma", "1"]).exits(0).err.contains("lies around"));
    let quiet = sandbox.train(&data, &["--task", "regress", "--scale", "standard"]).exits(0);
    assert!(!quiet.err.contains("whole numbers") && !quiet.err.contains("--scale"), "{}", quiet.err);
    let linear = sandbox.train(&data, &["--kernel", "linear", "--task", "classify"]).exits(0);
    assert!(!linear.err.contains("whole numbers") && !linear.err.contains("--scale"), "{}", linear.err);
    assert_eq!(sandbox.train(&heart(), &[]).exits(0).json()["cautions"], serde_json::json!([]));
}

#[test]
fn predictions_are_in_the_json_object() {
    let sandbox = Sandbox::new();
    let (model, out) = (sandbox.path("m.model"), sandbox.path("p.csv"));
    sandbox.train(&heart(), &["--probability"]).exits(0);
    let whole = margrave(&["predict", &model, &heart(), "--json", "--scores", "--probability"]).exits(0).json();
    margrave(&["predict", &model, &heart(), "--scores", "--probability", "-o", &out]).exits(0);
    let lines = text(&out);
    for (row, line) in lines.lines().skip(1).enumerate() {
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().expect("a number")).collect();
        let shown = [&whole["predictions"][row], &whole["scores"][row], &whole["probabilities"][row][1]];
        assert_eq!(shown.map(|v| v.as_f64()), [cells[0], cells[1], cells[3]].map(Some), "row {row}");
    }
    assert_eq!(whole["predictions"].as_array().map(Vec::len), Some(lines.lines().count() - 1));
    // With a file, they are there.
    let filed = margrave(&["predict", &model, &heart(), "--json", "-o", &out]).exits(0).json();
    assert!(filed["predictions"].is_null() && filed["n"] == 270, "{filed}");
    let houses = sandbox.file("h.csv", "a,y\n1,1.5\n2,2.5\n3,3.5\n4,4.5\n");
    sandbox.train(&houses, &["--task", "regress", "--probability"]).exits(0);
    let values = margrave(&["predict", &model, &houses, "--json", "--probability"]).exits(0).json();
    let (value, low) = (values["predictions"][0].as_f64(), values["intervals"][0][0].as_f64());
    assert!(low.zip(value).is_some_and(|(low, value)| low <= value), "{values}");
}

#[test]
fn inspect_names_the_positive_class() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("d.csv", "x,y\n1,no\n2,yes\n1.5,no\n2.5,yes\n");
    sandbox.train(&data, &[]).exits(0);
    let shown = margrave(&["inspect", &sandbox.path("m.model")]).exits(0).out;
    assert!(shown.contains("no, yes; positive (scores above 0): yes"), "{shown}");
}

#[test]
fn negative_class_weights_are_named() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    bad(
        &["train", &heart(), "-o", &model, "--class-weight", "1=2,-1=-3"],
        &["the weight of class -1 is negative (-3)"],
        &model,
    );
}

#[test]
fn searches_are_drawn_as_pixels_too() {
    let sandbox = Sandbox::new();
    let (data, plot) =
        (sandbox.file("d.csv", "x,y\n1,no\n2,yes\n1.5,no\n2.5,yes\n1.2,no\n2.2,yes\n"), sandbox.path("g.png"));
    let grid = ["--grid", "C=1,10", "--grid", "gamma=0.1,1", "--folds", "2"];
    margrave(&[&["tune", &data, "--plot", &plot], &grid[..]].concat()).exits(0);
    assert!(std::fs::read(&plot).expect("the picture").starts_with(b"\x89PNG"));
    let other = sandbox.path("g.gif");
    bad(&[&["tune", &data, "--plot", &other], &grid[..]].concat(), &["--plot", ".svg or .png"], &other);
}

#[test]
fn liblinear_models_are_not_sent_in_circles() {
    let sandbox = Sandbox::new();
    let model = sandbox.file(
        "l.model",
        "solver_type L2R_L2LOSS_SVC_DUAL\nnr_class 2\nlabel 1 -1\nnr_feature 13\nbias -1\nw\n".to_owned()
            + &"0.5 \n".repeat(13),
    );
    let shown = margrave(&["inspect", &model]).exits(0).out;
    assert!(shown.contains("no dual point") && !shown.contains("margrave verify"), "{shown}");
    bad(&["verify", &model, &heart()], &["LIBLINEAR model", "no dual point", "margrave train --kernel linear"], "none");
}

#[test]
fn folds_and_groups_follow_the_rows_that_are_left() {
    let sandbox = Sandbox::new();
    let row = |i: usize| format!("{},{}\n", if i == 3 { String::new() } else { (i % 4).to_string() }, i % 4 / 2);
    let data = sandbox.file("d.csv", (0..24).map(row).collect::<String>());
    // In these folds, rows 0 to 11 and 12 to 23 are apart.
    let folds = sandbox.file("folds", (0..24).map(|i| format!("{}\n", i / 12)).collect::<String>());
    let groups = sandbox.file("groups", (0..24).map(|i| format!("g{}\n", i / 6)).collect::<String>());
    let grid = ["--grid", "C=1", "--grid", "gamma=1", "--missing", "row", "--json"];
    let found = margrave(&[&["tune", &data, "--fold-file", &folds], &grid[..]].concat()).exits(0).json();
    assert_eq!((found["folds"].as_u64(), found["best"]["score"].as_f64()), (Some(2), Some(1.0)));
    margrave(&[&["tune", &data, "--groups", &groups, "--folds", "2"], &grid[..]].concat()).exits(0);
    let short = sandbox.file("short", "0\n1\n");
    bad(&[&["tune", &data, "--groups", &short], &grid[..]].concat(), &["2 lines for 24 rows"], "none");
}

#[test]
fn every_command_that_learns_takes_the_same_columns() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("d.csv", "id,a,b,y\nu,1,2,1.5\nv,,3,2.5\nw,3,1,3.5\nx,4,0,4\n");
    let out = sandbox.path("out.csv");
    bad(&["path", &data], &["--missing mean"], "none");
    let found = margrave(&["path", &data, "--missing", "mean", "--drop", "id", "--json"]).exits(0).json();
    assert_eq!((found["n"].as_u64(), found["d"].as_u64()), (Some(4), Some(2)));
    bad(&["check", "kernel", &data, "--drop", "id"], &["--missing mean"], "none");
    margrave(&["check", "kernel", &data, "--drop", "id", "--missing", "row"]).exits(0);
    bad(&["scale", &data, "-o", &out, "--only", "a"], &["--missing mean"], &out);
    margrave(&["scale", &data, "-o", &out, "--only", "a", "--missing", "median", "--scale", "minmax"]).exits(0);
    let lines: Vec<String> = text(&out).lines().map(str::to_owned).collect();
    // The median 3 of 1, 3, 4 is two thirds of the way.
    assert!(lines.iter().any(|line| line.starts_with("0.333") || line.contains("0.666")), "{lines:?}");
}
