//! Left-out figures in reports, and models compared.

use crate::common::{Sandbox, heart, margrave, number, text};

/// Two classes that overlap, with long names; the first feature has a hundred times the spread of the second.
fn clinic(rows: std::ops::Range<u32>) -> String {
    let mut text = String::from("pressure,marker,finding\n");
    for i in rows {
        let (a, b) = (f64::from(i * 37 % 101) / 101.0, f64::from(i * 53 % 97) / 97.0);
        let ill = b + 0.35 * (f64::from(i) * 12.9).sin() > 0.6;
        let name = if ill { "needs a follow-up <examination> & more" } else { "unremarkable finding" };
        text += &format!("{:.3},{:.4},{name}\n", 100.0 * a, b);
    }
    text
}

#[test]
fn reports_show_left_out_figures_beside_those_of_training() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("clinic.csv", clinic(0..160));
    let (model, html) = (sandbox.path("m"), sandbox.path("r.html"));
    let options = ["--scale", "standard", "--probability", "-C", "100", "--gamma", "3", "--seed", "4"];
    let args = [&["train", &data, "-o", &model, "--report", &html, "--json"][..], &options].concat();
    let object = margrave(&args).exits(0).json();
    let report = &object["report"];
    let (left, training) = (&report["left_out"], &report["training"]);
    assert_eq!(report["folds"], 5);
    // A machine this flexible remembers its rows.
    assert!(number(training, "accuracy") > number(left, "accuracy") + 0.03, "{report}");
    assert!(number(training, "log_loss") < number(left, "log_loss"), "{report}");
    assert_eq!(left["positive"], "unremarkable finding");
    let page = text(&html);
    let positive = "The positive class is <b>unremarkable finding</b>";
    for part in [
        positive,
        "needs a follow-up &lt;examination&gt; &amp; more",
        ">left out<",
        "left out: ",
        "training: ",
        "Bins, left out",
        "Scores by true class, left out",
        "Model card",
        "data fingerprint",
        report["fingerprint"].as_str().expect("a fingerprint"),
        "prefers-color-scheme:dark",
        "@media print",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(!page.contains("<script") && !page.contains("href=") && !page.contains("src="));
    // The same data in another order is other data; the same again is the same.
    let again = margrave(&args).exits(0).json();
    assert_eq!(again["report"], *report);
    let other = sandbox.file("clinic.csv", clinic(1..161));
    let args = ["train", &other, "-o", &model, "--report", &html, "--json"];
    assert_ne!(margrave(&args).exits(0).json()["report"]["fingerprint"], report["fingerprint"]);
}

#[test]
fn left_out_figures_are_those_of_folds_trained_by_hand() {
    let sandbox = Sandbox::new();
    let data = heart();
    let (model, html) = (sandbox.path("m"), sandbox.path("r.html"));
    let args = ["train", &data, "-o", &model, "--gamma", "0.1", "-C", "3", "--report", &html, "--json"];
    let found = margrave(&args).exits(0).json();
    // The search deals the same folds for the same seed, and its score is the mean over them, of equal size here.
    let args = ["tune", &data, "--grid", "C=3", "--gamma", "0.1", "--json"];
    let tuned = margrave(&args).exits(0).json();
    let (a, b) = (number(&found["report"]["left_out"], "accuracy"), number(&tuned["best"], "score"));
    assert!((a - b).abs() < 1.5 / 270.0, "{a} {b}");
}

#[test]
fn reports_have_leave_one_out_figures_in_closed_form() {
    let sandbox = Sandbox::new();
    let (model, html) = (sandbox.path("m"), sandbox.path("r.html"));
    let data = heart();
    let run = |args: &[&str]| {
        let all = [&["train", &data, "-o", &model, "--report", &html, "--json"][..], args].concat();
        (margrave(&all).exits(0).json(), text(&html))
    };
    // Least squares: exact, and the same as those of every λ at once.
    let (object, page) = run(&["--loss", "square", "--gamma", "0.1", "-C", "2"]);
    let closed = &object["report"]["leave_one_out"];
    assert_eq!((&closed["exact"], &closed["rows"]), (&true.into(), &270.into()), "{closed}");
    assert!(page.contains(">leave one out<") && page.contains("exact for this loss"), "{page}");
    assert!(number(closed, "accuracy") < number(&object["report"]["training"], "accuracy"), "{object}");
    assert!(number(closed, "roc_auc") > 0.8 && closed["log_loss"].is_null(), "{closed}");
    let (object, page) = run(&["--gamma", "0.1", "-C", "1", "--threshold", "max-f1"]);
    let closed = &object["report"]["leave_one_out"];
    assert_eq!(closed["exact"], false);
    assert!(page.contains("span rule") && page.contains("the threshold was chosen on the same scores"));
    // Rows at their bounds would move far: the rule is coarse, and the column is left out.
    let (object, page) = run(&["--gamma", "0.1", "-C", "50"]);
    assert!(object["report"]["leave_one_out"].is_null() && !page.contains(">leave one out<"));
    // No dual, no closed form.
    let (object, page) = run(&["--gamma", "0.1", "--loss", "sigmoid:eta=2"]);
    assert!(object["report"]["leave_one_out"].is_null() && !page.contains(">leave one out<"));
}

#[test]
fn missing_values_are_filled_inside_folds() {
    let sandbox = Sandbox::new();
    // Two folds; the rows of the second have larger numbers, so that a mean of all rows is far from that of the first.
    let row = |i: u32| {
        let late = i % 2 == 1;
        let (a, b) = (f64::from(i * 37 % 23) / 23.0, f64::from(i * 11 % 19) / 19.0);
        let value = if i % 5 < 2 { String::new() } else { format!("{:.4}", a + if late { 3.0 } else { 0.0 }) };
        format!("{value},{b:.4},{}\n", if a + b > 1.0 { "yes" } else { "no" })
    };
    let head = "a,b,y\n";
    let rows: Vec<String> = (0..60).map(row).collect();
    let data = sandbox.file("all.csv", format!("{head}{}", rows.concat()));
    let folds = sandbox.file("folds", (0..60).map(|i| format!("{}\n", i % 2)).collect::<String>());
    for rule in ["mean", "median", "indicator"] {
        let grid = ["--grid", "C=5", "--gamma", "1", "--missing", rule, "--scale", "standard", "--json"];
        let tuned = margrave(&[&["tune", &data, "--fold-file", &folds], &grid[..]].concat()).exits(0).json();
        let mut by_hand = 0.0;
        for fold in 0..2 {
            let part = |keep: bool| {
                let own = (0..60usize).filter(|i| (i % 2 == fold) != keep).map(|i| rows[i].as_str());
                format!("{head}{}", own.collect::<String>())
            };
            let (train, held) = (sandbox.file("train.csv", part(true)), sandbox.file("held.csv", part(false)));
            let model = sandbox.path("m");
            let options = ["-C", "5", "--gamma", "1", "--missing", rule, "--scale", "standard", "-o", &model];
            margrave(&[&["train", &train], &options[..]].concat()).exits(0);
            by_hand += 0.5 * number(&margrave(&["predict", &model, &held, "--json"]).exits(0).json(), "accuracy");
        }
        let found = number(&tuned["best"], "score");
        assert!((found - by_hand).abs() < 1e-9, "{rule}: {found} {by_hand}");
        // Reports deal the folds of a search.
        let (model, html) = (sandbox.path("m"), sandbox.path("r.html"));
        let options = ["-C", "5", "--gamma", "1", "--missing", rule, "--scale", "standard", "--json"];
        let fit =
            margrave(&[&["train", &data, "-o", &model, "--report", &html], &options[..]].concat()).exits(0).json();
        let tuned = margrave(&[&["tune", &data], &grid[..]].concat()).exits(0).json();
        let (a, b) = (number(&fit["report"]["left_out"], "accuracy"), number(&tuned["best"], "score"));
        assert!((a - b).abs() < 1e-9, "{rule}: {a} {b}");
    }
}

#[test]
fn reports_say_why_there_are_no_left_out_figures() {
    let sandbox = Sandbox::new();
    let html = sandbox.path("r.html");
    let alone = sandbox.file("alone.csv", "x,y\n1,a\n2,a\n3,a\n4,a\n9,b\n");
    let train = |args: &[&str], data: &str, code: i32| {
        let model = sandbox.path("m");
        let all = [&["train", data, "-o", &model, "--report", &html, "--json"][..], args].concat();
        let object = margrave(&all).exits(code).json();
        assert!(object["report"]["left_out"].is_null(), "{object}");
        object["report"]["how"].as_str().expect("a reason").to_owned()
    };
    assert!(train(&[], &alone, 0).contains("a class has a single row"));
    assert!(train(&["--max-iter", "1", "--gap", "1e-9"], &heart(), 3).contains("stopped before its end"));
    assert!(train(&["--task", "novelty"], &heart(), 0).contains("no targets"));
    assert!(text(&html).ends_with("</html>\n"));
}

#[test]
fn models_of_classes_are_compared_by_mc_nemar() {
    let sandbox = Sandbox::new();
    let train = sandbox.file("train.csv", clinic(0..160));
    let test = sandbox.file("test.csv", clinic(160..460));
    let (a, b) = (sandbox.path("a.model"), sandbox.path("b.model"));
    margrave(&["train", &train, "-o", &a, "--scale", "standard"]).exits(0);
    // Without scaling the pressure hides the marker.
    margrave(&["train", &train, "-o", &b, "--gamma", "1"]).exits(0);
    let object = margrave(&["compare", &a, &b, &test, "--json"]).exits(0).json();
    let accuracy = |key: &str| number(&object[key], "accuracy");
    let one = &object["tests"][0];
    let (only_a, only_b) = (number(one, "only_a_right"), number(one, "only_b_right"));
    assert!(((only_a - only_b) / 300.0 - (accuracy("a") - accuracy("b"))).abs() < 1e-12, "{object}");
    assert!(number(one, "p_value") < 0.01 && only_a > only_b, "{object}");
    let said = margrave(&["compare", &a, &b, &test]).exits(0);
    assert!(
        said.out.contains("McNemar's exact test") && said.out.contains("a.model has the better accuracy"),
        "{}",
        said.out
    );
    assert!(said.err.is_empty(), "{}", said.err);
    // A model does not differ from itself, and its training rows are recognised.
    let same = margrave(&["compare", &a, &a, &train]).exits(0);
    assert!(same.out.contains("no difference in accuracy beyond chance") && same.out.contains("p = 1"), "{}", same.out);
    assert!(same.err.contains("was trained on these rows"), "{}", same.err);
}

#[test]
fn models_of_numbers_are_compared_by_their_errors() {
    let sandbox = Sandbox::new();
    let wave = |rows: std::ops::Range<u32>| -> String {
        rows.map(|i| format!("{:.5} 1:{:.3}\n", (f64::from(i) * 0.11).sin(), f64::from(i % 60) * 0.11)).collect()
    };
    let (train, test) = (sandbox.file("a.svm", wave(0..60)), sandbox.file("b.svm", wave(0..57)));
    let (a, b) = (sandbox.path("a.model"), sandbox.path("b.model"));
    margrave(&["train", &train, "-o", &a, "--task", "regress", "--kernel", "linear"]).exits(0);
    margrave(&["train", &train, "-o", &b, "--task", "regress", "--epsilon", "0.01", "-C", "10"]).exits(0);
    let object = margrave(&["compare", &a, &b, &test, "--json"]).exits(0).json();
    let difference = number(&object["a"], "mse") - number(&object["b"], "mse");
    assert!((number(&object["tests"][0], "mean_difference") - difference).abs() < 1e-12, "{object}");
    assert_eq!(number(&object["tests"][0], "degrees_of_freedom"), 56.0);
    assert!(number(&object["tests"][1], "b_nearer") > number(&object["tests"][1], "a_nearer"), "{object}");
    let said = margrave(&["compare", &a, &b, &test]).exits(0);
    assert!(
        said.out.contains("b.model has the smaller squared errors") && said.out.contains("exact sign test"),
        "{}",
        said.out
    );
}

#[test]
fn models_that_do_not_fit_are_refused() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("clinic.csv", clinic(0..60));
    let (a, b, c) = (sandbox.path("a.model"), sandbox.path("b.model"), sandbox.path("c.model"));
    margrave(&["train", &data, "-o", &a]).exits(0);
    margrave(&["train", &heart(), "-o", &b]).exits(0);
    margrave(&["train", &heart(), "-o", &c, "--task", "regress"]).exits(0);
    let bare = sandbox.file("bare.csv", "pressure,marker\n1,2\n");
    let novel = sandbox.path("n.model");
    margrave(&["train", &heart(), "-o", &novel, "--task", "novelty"]).exits(0);
    let relabelled = sandbox.file("relabelled.csv", clinic(0..60).replace("unremarkable", "unknown"));
    for (args, said) in [
        ([&a, &b, &data], "there are 3 columns, but the model was trained on 13"),
        ([&b, &c, &heart()], "same task"),
        ([&a, &a, &bare], "no target"),
        ([&novel, &novel, &heart()], "no targets to compare by"),
        ([&a, &a, &relabelled], "the label unknown finding, which"),
        ([&a, &a, &"-".to_owned()], "not stdin"),
    ] {
        let ran = margrave(&["compare", args[0], args[1], args[2]]).exits(2);
        assert!(ran.err.contains(said), "{said}: {}", ran.err);
    }
}

#[test]
fn features_are_explained_on_demand() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("clinic.csv", clinic(0..200));
    let (model, html) = (sandbox.path("m"), sandbox.path("r.html"));
    let base = ["train", &data, "-o", &model, "--scale", "standard", "--json", "--report", &html];
    let without = margrave(&base).exits(0).json();
    assert!(without["report"]["features"].is_null() && !text(&html).contains("Partial effects"));
    let args = [&base[..], &["--explain-features", "--probability"]].concat();
    let found = margrave(&args).exits(0).json();
    let features = &found["report"]["features"];
    let (first, second) = (&features["importance"][0], &features["importance"][1]);
    // The finding follows from the marker; the pressure is noise.
    assert_eq!((&first["feature"], &second["feature"]), (&"marker".into(), &"pressure".into()));
    assert!(number(first, "mean") > 0.2 && number(second, "mean").abs() < 0.05, "{features}");
    assert_eq!(features["effect_of"], "mean probability of unremarkable finding");
    let effect = features["effects"][0]["points"].as_array().expect("points");
    let height = |at: usize| effect[at][1].as_f64().expect("a probability");
    assert!(height(0) > 0.8 && height(effect.len() - 1) < 0.4, "{features}");
    let page = text(&html);
    assert!(page.contains("Partial effects") && page.contains("accuracy lost"));
    // Deterministic for any number of threads; sparse rows and numbers too.
    assert_eq!(margrave(&[&args[..], &["--threads", "1"]].concat()).exits(0).json()["report"], found["report"]);
    let sparse = ["train", &heart(), "-o", &model, "--json", "--report", &html, "--explain-features"];
    for task in ["classify", "regress"] {
        let object = margrave(&[&sparse[..], &["--task", task]].concat()).exits(0).json();
        let features = &object["report"]["features"];
        assert_eq!(features["importance"].as_array().expect("a list").len(), 13);
        assert!(features["importance"][0]["feature"].as_str().expect("a name").starts_with("feature "));
        assert!(number(&features["importance"][0], "mean") > 0.01, "{features}");
    }
}

#[test]
fn features_cannot_be_explained_without_a_report_or_by_the_thousand() {
    let sandbox = Sandbox::new();
    let (model, html) = (sandbox.path("m"), sandbox.path("r.html"));
    let ran = margrave(&["train", &heart(), "-o", &model, "--explain-features"]).exits(2);
    assert!(ran.err.contains("--report"), "{}", ran.err);
    let wide = sandbox.file("wide.svm", "1 501:1\n-1 2:1\n1 3:1\n-1 4:1\n");
    let ran = margrave(&["train", &wide, "-o", &model, "--report", &html, "--explain-features"]).exits(2);
    assert!(ran.err.contains("501 features, and at most 500"), "{}", ran.err);
    assert!(!std::path::Path::new(&model).exists() && !std::path::Path::new(&html).exists());
}
