//! What a stranger with a messy table reads: remedies, names of options and columns, and pages that say what they show.

use serde_json::json;

use crate::common::{Sandbox, heart, margrave, number, text};

/// Sixty patients sorted by finding: words decide it, one column is noise, some cells are empty, and visits are dates.
fn clinic() -> String {
    let mut table = String::from("noise,habit,size,age,visit,finding\n");
    for i in 0..90 {
        let ill = i >= 60;
        let habit = match (ill, i % 3) {
            (false, 0) | (true, 1) => "sometimes",
            (false, _) => "never",
            (true, _) => "daily",
        };
        let age = if i % 10 == 3 { String::new() } else { (30 + i * 7 % 40 + 12 * u32::from(ill)).to_string() };
        let size = ["small", "medium", "large"][(i % 3) as usize];
        let noise = i * 37 % 11;
        table += &format!("{noise},{habit},{size},{age},2024-{:02}-{:02},{}\n", i % 12 + 1, i % 28 + 1, ill);
    }
    table.replace("true", "ill").replace("false", "well")
}

#[test]
fn outputs_in_folders_that_do_not_exist_are_refused_with_the_remedy() {
    let sandbox = Sandbox::new();
    let (data, model) = (heart(), sandbox.path("m.model"));
    sandbox.train(&data, &[]).exits(0);
    let (absent, other, file) = (sandbox.path("nosuch/x.html"), sandbox.path("x.model"), sandbox.path("m.model/x.svg"));
    for (option, path, args) in [
        ("--report", &absent, vec!["train", &data, "-o", &other]),
        ("--trace", &absent, vec!["train", &data, "-o", &other]),
        ("-o", &absent, vec!["train", &data]),
        ("--table", &absent, vec!["tune", &data, "--grid", "C=1,2"]),
        ("--plot", &file, vec!["tune", &data, "--grid", "C=1,2", "--grid", "gamma=1,2"]),
        ("-o", &absent, vec!["predict", &model, &data]),
    ] {
        let ran = margrave(&[&args[..], &[option, path]].concat()).exits(2);
        assert!(ran.err.contains(&format!("{option}: {path}: ")), "{}", ran.err);
        let remedy =
            if path == &file { "m.model is not a folder: name another" } else { "nosuch does not exist: create it" };
        assert!(ran.err.contains(remedy), "{}", ran.err);
        assert!(!ran.err.contains(".margrave-") && !ran.err.contains("os error"), "{}", ran.err);
        assert!(!std::path::Path::new(&other).exists());
    }
    let folder = sandbox.path(".");
    let ran = margrave(&["train", &data, "-o", &folder]).exits(2);
    assert!(ran.err.contains("it is a folder: name a file"), "{}", ran.err);
}

#[test]
fn values_out_of_range_are_named_by_their_option() {
    let sandbox = Sandbox::new();
    let (data, model) = (heart(), sandbox.path("m.model"));
    for (args, said) in [
        (vec!["train", "--task", "novelty", "--nu", "1.5"], "--nu 1.5 is not allowed"),
        (vec!["train", "--class-weight", "sick=2"], "--class-weight sick is not allowed: one of the classes -1, 1"),
        (vec!["tune", "--score", "r2"], "--score r2 is not allowed: it is for numbers"),
        (vec!["tune", "--grid", "C=1", "--folds", "1"], "--folds 1 is not allowed"),
        (
            vec!["train", "--task", "regress", "--probability", "--probability-rule", "free"],
            "--probability-rule is for classes: leave it out",
        ),
    ] {
        let ran = margrave(&[&args[..1], &[&data, "-o", &model], &args[1..]].concat()).exits(2);
        assert!(ran.err.contains(said), "{}", ran.err);
        assert!(!std::path::Path::new(&model).exists(), "{said}");
    }
    // LIBSVM's and LIBLINEAR's tools end with 1.
    for tool in ["svm-train", "liblinear-train"] {
        let ran = margrave(&[tool, "-w1", "-2", &data, &model]).exits(1);
        assert!(ran.err.contains("the weight of class 1 is negative (-2)"), "{}", ran.err);
        assert!(!std::path::Path::new(&model).exists(), "{tool}");
    }
}

#[test]
fn what_fills_missing_values_is_said() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("d.csv", clinic().replacen("never", "", 2));
    for (rule, age, habit) in [
        ("median", "filled with its median, 54", "filled with its most frequent text, `never`"),
        ("mean", "filled with its mean, 53.3333", "filled with its most frequent text, `never`"),
        ("indicator", "and marked by a feature of their own", "missing: marked by a feature of their own"),
    ] {
        let ran = sandbox.train(&data, &["--missing", rule, "--scale", "standard"]).exits(0);
        let of = |column: &str| {
            let line =
                ran.err.lines().find(|line| line.contains(&format!("(`{column}`) are missing"))).map(str::to_owned);
            line.unwrap_or_else(|| panic!("{column}: {}", ran.err))
        };
        assert!(of("age").contains("9 of 90 values") && of("age").contains(age), "{}", ran.err);
        assert!(of("habit").contains("2 of 90 values") && of("habit").contains(habit), "{}", ran.err);
    }
}

#[test]
fn summaries_name_the_target_and_inspect_what_is_done_to_the_table() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("d.csv", clinic());
    let model = sandbox.path("m");
    let args = ["train", &data, "-o", &model, "--missing", "median", "--drop", "noise", "--scale", "standard"];
    assert!(margrave(&args).exits(0).out.contains("d.csv, 90 rows, 8 features, target finding"));
    let shown = margrave(&["inspect", &model]).exits(0).out;
    for part in ["target           finding", "missing values   the median of the column", "dropped          noise"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let object = margrave(&["inspect", &model, "--json"]).exits(0).json();
    assert_eq!((&object["target"], &object["missing"]), (&"finding".into(), &"median".into()), "{object}");
    assert_eq!(object["dropped"], serde_json::json!(["noise"]));
    // LIBLINEAR's files say nothing of rows, C or support vectors.
    let linear = sandbox.path("l");
    margrave(&["liblinear-train", "-q", &heart(), &linear]).exits(0);
    let shown = margrave(&["inspect", &linear]).exits(0).out;
    assert!(shown.contains("13 features; the file does not say how many rows"), "{shown}");
    assert!(shown.contains("classify, L2R_L2LOSS_SVC_DUAL") && !shown.contains("support vectors"), "{shown}");
    // Features count from 1, as LIBSVM's do: the largest weight of these data is that of feature 12.
    assert!(shown.contains("largest weights  feature 12 "), "{shown}");
}

#[test]
fn a_threshold_does_not_agree_with_a_half() {
    let sandbox = Sandbox::new();
    let data = heart();
    let args = ["train", &data, "-o", &sandbox.path("m"), "--probability", "--probability-rule", "agree"];
    assert!(margrave(&args).exits(0).out.contains("agree with predictions, as asked\n"));
    let shown = margrave(&[&args[..], &["--threshold", "recall=0.95"]].concat()).exits(0).out;
    assert!(shown.contains("are ½ at score 0, as asked; 1 is predicted where its probability exceeds 0."), "{shown}");
}

#[test]
fn imbalance_is_said_in_the_options_of_the_command() {
    let sandbox = Sandbox::new();
    let two = sandbox.file("two.csv", clinic().replace(",ill", ",well").replacen(",well", ",ill", 5));
    let notes = sandbox.train(&two, &["--missing", "mean"]).exits(0).err;
    let said = "the largest class, well, has 85 rows and the smallest, ill, has 5: accuracy hardly counts the rare class; \
                consider --class-weight balanced or --threshold, or a search with --score";
    assert!(notes.contains(said), "{notes}");
    let three = sandbox.file("three.csv", clinic().replacen(",well", ",odd", 3));
    let notes = sandbox.train(&three, &["--missing", "mean"]).exits(0).err;
    assert!(notes.contains("consider --class-weight balanced, or a search"), "{notes}");
}

#[test]
fn searches_warn_of_uneven_scales_before_they_begin() {
    let sandbox = Sandbox::new();
    let row = |i: u32| format!("{},{},20{:02}-05-17,{}\n", 20 + i * 7 % 60, 15 + i % 25, i % 9 + 10, i % 2);
    let data = sandbox.file("d.csv", format!("age,bmi,visit,y\n{}", (0..60).map(row).collect::<String>()));
    let uneven = "feature 3 (visit) ranges over 2922 and a quarter of the features over 24 or less";
    let level = "feature 3 (visit) lies around 16";
    let tuned = |args: &[&str]| margrave(&[&["tune", &data, "--json"], args].concat()).exits(0);
    let found = tuned(&["--grid", "C=1,10", "--grid", "gamma=0.1,1"]);
    assert!(found.err.contains(uneven) && !found.err.contains(level), "{}", found.err);
    assert!(found.json()["cautions"].to_string().contains("--scale standard"));
    // Without a grid of γ the rule of train holds.
    let found = tuned(&["--grid", "C=1,10"]);
    assert!(found.err.contains(level) && sandbox.train(&data, &[]).exits(0).err.contains(level), "{}", found.err);
    for args in [["--grid", "kernel=linear,poly", "--gamma", "1"], ["--grid", "C=1,10", "--scale", "standard"]] {
        let found = tuned(&args);
        assert!(!found.err.contains("--scale standard"), "{}", found.err);
    }
    assert!(tuned(&["--kernel", "linear", "--grid", "kernel=rbf,linear", "--gamma", "1"]).err.contains(uneven));
    // Said before the search: what stops it does not hide the note.
    let stopped = margrave(&["tune", &data, "--max-seconds", "0"]);
    assert!(stopped.code != 0 && stopped.err.contains(uneven), "{}", stopped.err);
}

#[test]
fn pictures_of_searches_name_their_score() {
    let sandbox = Sandbox::new();
    let (data, svg) = (heart(), sandbox.path("g.svg"));
    let drawn = |args: &[&str]| {
        let grid = ["--grid", "C=1,10", "--grid", "gamma=0.1,1", "--plot", &svg];
        margrave(&[&["tune", &data], &grid[..], args].concat()).exits(0);
        text(&svg)
    };
    assert!(drawn(&[]).contains("accuracy, % over C and γ, rbf kernel"));
    let picture = drawn(&["--score", "log-loss"]);
    assert!(picture.contains("log-loss over C and γ, rbf kernel") && !picture.contains(">-0."), "{picture}");
    assert!(drawn(&["--score", "roc-auc"]).contains("roc-auc over C and γ, rbf kernel"));
    let picture = drawn(&["--task", "regress"]);
    assert!(picture.contains("mean squared error over C and γ, rbf kernel") && !picture.contains(">-0."), "{picture}");
}

#[test]
fn the_words_of_a_column_are_explained_together() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("d.csv", clinic());
    let (model, html) = (sandbox.path("m"), sandbox.path("r.html"));
    let table = ["--missing", "indicator", "--ordinal", "size=small,medium,large", "--scale", "standard"];
    let report = ["--report", &html, "--explain-features", "--probability", "--json"];
    let args = [&["train", &data, "-o", &model][..], &table, &report].concat();
    let features = margrave(&args).exits(0).json()["report"]["features"].clone();
    let importance = features["importance"].as_array().expect("a list");
    let names: Vec<&str> = importance.iter().filter_map(|one| one["feature"].as_str()).collect();
    assert_eq!((names.len(), names[0]), (5, "habit"), "{features}");
    // Alone, a word that is shuffled leaves the others to say the same.
    assert!(number(&importance[0], "mean") > 0.2, "{features}");
    let effects = features["effects"].as_array().expect("a list");
    let of = |name: &str| effects.iter().find(|one| one["feature"] == name).unwrap_or_else(|| panic!("{features}"));
    let words = of("habit")["words"].as_array().expect("a list");
    let mean = |word: &str| words.iter().find(|w| w[0] == word).and_then(|w| w[1].as_f64()).expect("a mean");
    assert!(mean("never") > mean("sometimes") && mean("sometimes") > mean("daily"), "{words:?}");
    assert_eq!(of("size")["points"].as_array().map(Vec::len), Some(3));
    let page = text(&html);
    for part in [
        "size: 0 = small, 1 = medium, 2 = large",
        "visit, days since 1970-01-01",
        ">probability<",
        "<th class=\"n first\">habit</th>",
        "<th class=\"n first\">column</th>",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
}

#[test]
fn reports_have_figures_of_each_class_and_all_of_the_model() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("d.csv", clinic());
    let (model, html) = (sandbox.path("m"), sandbox.path("r.html"));
    let table = ["--missing", "row", "--drop", "noise,habit", "--scale", "standard"];
    let args = ["train", &data, "-o", &model, "--report", &html, "--threshold", "max-f1", "--json"];
    let object = margrave(&[&args[..], &table].concat()).exits(0).json();
    let page = text(&html);
    let well = &object["report"]["left_out"]["by_class"][1];
    assert_eq!(well["label"], "well");
    let line = ["precision", "recall", "f1"].map(|key| format!("<td class=\"n\">{:.3}</td>", number(well, key)));
    assert!(
        page.contains(&format!("<td class=\"n first\">well</td><td class=\"n\">54</td>{}", line.concat())),
        "{page}"
    );
    for row in
        ["target</th><td>finding", "missing values</th><td>their rows are left out", "dropped</th><td>noise, habit"]
    {
        assert!(page.contains(row), "{row} is missing");
    }
    assert_eq!(page.matches("max-f1 on left-out scores").count(), 2, "the summary and the model card");
    // Rows are those of the file: every tenth is left out, and the worst are among the others.
    let worst = page.split("The worst samples").nth(1).expect("a section").split("Model card").next().expect("its end");
    let rows: Vec<u32> = worst
        .split("<td class=\"n first\">")
        .skip(1)
        .map(|cell| cell.split('<').next().and_then(|row| row.parse().ok()).expect("a row"))
        .collect();
    assert!(rows.len() == 10 && rows.iter().all(|row| row % 10 != 4), "{rows:?}");
    assert!(rows.iter().any(|row| *row > 81), "81 rows are left, and the last of the file are ill: {rows:?}");
    // So are those of a proof.
    let rough = ["train", &data, "-o", &model, "--tol", "1", "--missing", "row", "--scale", "standard"];
    margrave(&rough);
    let shown = margrave(&["verify", &model, &data, "--gap", "10"]).exits(0).out;
    let worst = shown.lines().find(|line| line.contains("worst rows")).expect("a line");
    let rows: Vec<u32> =
        worst.split("row ").skip(1).map(|part| part.split(' ').next().unwrap_or("").parse().expect("a row")).collect();
    assert!(rows.len() == 3 && rows.iter().all(|row| row % 10 != 4), "{worst}");
}

#[test]
fn comparisons_do_not_vouch_for_rows_they_cannot_know() {
    let sandbox = Sandbox::new();
    let data = heart();
    let (kernel, linear) = (sandbox.path("k"), sandbox.path("l"));
    margrave(&["train", &data, "-o", &kernel]).exits(0);
    margrave(&["train", &data, "-o", &linear, "--kernel", "linear"]).exits(0);
    let ran = margrave(&["compare", &kernel, &linear, &data, "--json"]).exits(0);
    let object = ran.json();
    assert_eq!(object["a"]["trained_on_these_rows"], true);
    assert!(object["b"]["trained_on_these_rows"].is_null(), "{object}");
    assert!(ran.err.contains("l has as many training rows as these, and does not keep them"), "{}", ran.err);
    let half: String = text(&data).lines().take(100).map(|line| format!("{line}\n")).collect();
    let object = margrave(&["compare", &kernel, &linear, &sandbox.file("h.svm", half), "--json"]).exits(0).json();
    assert_eq!(object["b"]["trained_on_these_rows"], false);
}

#[test]
fn regressions_that_learn_nothing_are_pointed_out() {
    let sandbox = Sandbox::new();
    let row = |i: u32| format!("{},{}\n", f64::from(i * 37 % 101) / 101.0, 50_000 + 3_000 * (i * 37 % 101));
    let data = sandbox.file("d.csv", format!("size,price\n{}", (0..80).map(row).collect::<String>()));
    let said = "% of the variance of the training targets, whose deviation is ";
    let regress = ["--task", "regress", "--scale", "standard"];
    let ran = sandbox.train(&data, &regress).exits(0);
    assert!(ran.err.contains(said) && ran.err.contains("try a larger -C"), "{}", ran.err);
    assert!(ran.json()["cautions"].to_string().contains(said));
    let ran = sandbox.train(&data, &[&regress[..], &["-C", "1e6"]].concat()).exits(0);
    assert!(!ran.err.contains(said), "{}", ran.err);
    // Quantiles are not judged by squared errors.
    let ran = sandbox.train(&data, &[&regress[..], &["--loss", "pinball:tau=0.99"]].concat()).exits(0);
    assert!(!ran.err.contains(said), "{}", ran.err);
    let model = sandbox.path("m");
    let ran = margrave(&[&["tune", &data, "--grid", "C=1,2", "-o", &model, "--json"], &regress[..]].concat()).exits(0);
    assert!(ran.err.contains(said) && ran.json()["cautions"].to_string().contains(said), "{}", ran.err);
}

#[test]
fn texts_that_are_nearly_numbers_or_dates_are_noticed() {
    let sandbox = Sandbox::new();
    let row = |i: u32| format!("{}%,{:02}/{:02}/2024,$ {},{},{}\n", i % 9, i % 12 + 1, i % 28 + 1, i % 5, i % 7, i % 2);
    let data = sandbox.file("d.csv", format!("share,when,price,a,y\n{}", (0..40).map(row).collect::<String>()));
    let notes = sandbox.train(&data, &[]).exits(0).err;
    for said in [
        "column 1 (`share`) holds numbers with a sign beside them such as `0%`, read as words: leave the sign out",
        "column 2 (`when`) holds dates such as `01/01/2024`, read as words: write them as 2024-05-17",
        "column 3 (`price`) holds numbers with a sign beside them such as `$ 0`",
    ] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
    // Dates that are to be words, and words with digits in them, are left alone.
    let row = |i: u32| format!("2024-05-{:02},B{},1.{}.7,{}\n", i % 3 + 10, i % 4, i % 3, i % 2);
    let data = sandbox.file("d.csv", format!("when,code,version,y\n{}", (0..40).map(row).collect::<String>()));
    let notes = sandbox.train(&data, &["--dates", "text"]).exits(0).err;
    assert!(!notes.contains("read as words"), "{notes}");
}

#[test]
fn comparisons_have_a_page_with_both_reports() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("d.csv", clinic());
    let (first, second, html) = (sandbox.path("a"), sandbox.path("b"), sandbox.path("ab.html"));
    let table = ["--missing", "median", "--scale", "standard", "--probability"];
    margrave(&[&["train", &data, "-o", &first][..], &table].concat()).exits(0);
    margrave(&[&["train", &data, "-o", &second, "--kernel", "linear", "--drop", "habit"][..], &table].concat())
        .exits(0);
    let ran = margrave(&["compare", &first, &second, &data, "--report", &html, "--json"]).exits(0);
    let (object, page) = (ran.json(), text(&html));
    assert_eq!(object["report"], html.as_str());
    let accuracy = |side: &str| format!("{} %", (1e4 * number(&object[side], "accuracy")).round() / 1e2);
    for part in [
        format!("first: {first}"),
        format!("second: {second}"),
        accuracy("a"),
        accuracy("b"),
        object["verdict"].as_str().expect("a text").replace('&', "&amp;"),
        "McNemar&#39;s exact test".replace("&#39;", "'"),
        "does not keep them".to_owned(),
        "ROC, and precision against recall".to_owned(),
        "Expected calibration error: first".to_owned(),
        "Scores by true class, second".to_owned(),
        "rbf, γ = ".to_owned(),
    ] {
        assert!(page.contains(&part), "{part} is missing");
    }
    assert!(!page.contains("<script") && !page.contains("href=") && page.contains("prefers-color-scheme:dark"));
    // Labels that are numbers, more than two classes, and numbers.
    let iris: String = (0..60).map(|i| format!("{},{},{}\n", i % 7, i * 5 % 11, i % 3)).collect();
    let several = sandbox.file("s.csv", format!("p,q,y\n{iris}"));
    for (args, said) in [(&[][..], "Confusion matrix"), (&["--task", "regress"], "Predictions and residuals")] {
        margrave(&[&["train", &several, "-o", &first][..], args].concat()).exits(0);
        margrave(&[&["train", &several, "-o", &second, "-C", "9"][..], args].concat()).exits(0);
        margrave(&["compare", &first, &second, &several, "--report", &html]).exits(0);
        assert!(text(&html).contains(said), "{said}");
    }
    let nowhere = sandbox.path("nosuch/ab.html");
    let ran = margrave(&["compare", &first, &second, &several, "--report", &nowhere]).exits(2);
    assert!(ran.err.contains("--report: ") && ran.err.contains("does not exist: create it") && ran.out.is_empty());
}

#[test]
fn comparisons_tell_what_differs_on_a_rare_class() {
    let sandbox = Sandbox::new();
    // Ten rows in a hundred are rare, around 0 on one axis, where the others thin out.
    let row = |i: u32| {
        let rare = i.is_multiple_of(10);
        let x = f64::from(i * 37 % 101) / 101.0 * if rare { 0.4 } else { 2.0 };
        format!("{x:.3},{}\n", if rare { "rare" } else { "usual" })
    };
    let data = sandbox.file("d.csv", format!("x,y\n{}", (0..300).map(row).collect::<String>()));
    let (plain, balanced) = (sandbox.path("a"), sandbox.path("b"));
    margrave(&["train", &data, "-o", &plain]).exits(0);
    margrave(&["train", &data, "-o", &balanced, "--class-weight", "balanced"]).exits(0);
    let ran = margrave(&["compare", &plain, &balanced, &data]).exits(0);
    assert!(ran.out.contains("a has the better accuracy"), "{}", ran.out);
    assert!(
        ran.out.contains("McNemar's exact test, rows of rare alone: 0 rows only the first gets right"),
        "{}",
        ran.out
    );
    let object = margrave(&["compare", &plain, &balanced, &data, "--json"]).exits(0).json();
    let tests = object["tests"].as_array().expect("a list");
    assert_eq!(
        tests.iter().map(|t| t["class"].clone()).collect::<Vec<_>>(),
        [json!(null), json!("rare"), json!("usual")]
    );
    for key in ["only_a_right", "only_b_right"] {
        assert_eq!(number(&tests[0], key), number(&tests[1], key) + number(&tests[2], key), "{object}");
    }
    assert!(number(&tests[1], "p_value") < 0.01, "{object}");
}

#[test]
fn a_machine_that_is_zero_is_proven_up_to_rounding_and_pointed_out() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("zero.model");
    let ran = margrave(&["train", &heart(), "--nu", "0.01", "-k", "linear", "-o", &model]).exits(0);
    assert!(ran.out.starts_with("optimal to double precision\n"), "{}", ran.out);
    assert!(ran.err.contains("note: the best machine is zero") && ran.err.contains("--nu"), "{}", ran.err);
    let ran = margrave(&["verify", &model, &heart()]).exits(0);
    assert!(ran.out.starts_with("proven to double precision: the rest of the gap is rounding\n"), "{}", ran.out);
    let ran = margrave(&["train", &heart(), "--nu", "0.4", "-k", "linear", "-o", &model]).exits(0);
    assert!(ran.out.starts_with("optimal\n") && !ran.err.contains("zero"), "{}{}", ran.out, ran.err);
    assert!(margrave(&["verify", &model, &heart()]).exits(0).out.starts_with("proven\n"));
}
