//! LIBSVM's tools and formats, compared with what its own tools (3.24) printed.

use std::path::Path;

use crate::common::{Sandbox, heart, margrave, text};

/// The numbers of `obj = …, rho = …`.
fn objective(ran: &str) -> (f64, f64) {
    let line = ran.lines().find(|line| line.starts_with("obj = ")).expect("an objective");
    let mut numbers = line.split([' ', ',']).filter_map(|word| word.parse().ok());
    (numbers.next().expect("obj"), numbers.next().expect("rho"))
}

/// Six clouds on a circle, labels in no particular order.
fn six() -> String {
    let mut text = String::new();
    for i in 0..120u32 {
        let class = (i * 5) % 6;
        let (angle, t) = (f64::from(class), f64::from(i));
        let label = [7, -2, 3, 10, 1, 4][class as usize];
        text += &format!(
            "{label} 1:{:.4} 3:{:.4}\n",
            angle.cos() + 0.5 * (1.7 * t).sin(),
            angle.sin() + 0.5 * (2.3 * t).cos()
        );
    }
    text
}

#[test]
fn training_prints_and_writes_what_libsvm_does() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("heart.model");
    let ran = margrave(&["svm-train", &heart(), &model]).exits(0);
    // Both stop at a KKT violation of 1e-3.
    let (obj, rho) = objective(&ran.out);
    assert!((obj + 100.877288).abs() < 1e-3 && (rho - 0.424462).abs() < 1e-3, "{}", ran.out);
    assert!(ran.out.ends_with("nSV = 132, nBSV = 107\nTotal nSV = 132\n"), "{}", ran.out);
    assert!(ran.out.contains("optimization finished, #iter = ") && ran.out.contains("\nnu = 0.43103"));
    let written = text(&model);
    let head = "svm_type c_svc\nkernel_type rbf\ngamma 0.076923076923076927\nnr_class 2\ntotal_sv 132\nrho 0.42";
    assert!(written.starts_with(head) && written.contains("\nlabel 1 -1\nnr_sv 64 68\nSV\n"), "{}", &written[..200]);
    margrave(&["verify", &model, &heart(), "-C", "1", "--quiet"]).exits(0);
    let out = sandbox.path("out");
    let ran = margrave(&["svm-predict", &heart(), &model, &out]).exits(0);
    assert_eq!(ran.out, "Accuracy = 86.6667% (234/270) (classification)\n");
    assert_eq!(margrave(&["svm-predict", "-q", &heart(), &model, &out]).exits(0).out, "");
    assert_eq!(text(&out).lines().filter(|line| *line == "1" || *line == "-1").count(), 270);
}

#[test]
fn cross_validation_prints_the_same_number() {
    // svm-train -v 5 of LIBSVM prints these: the folds are the same to the row.
    let ran = margrave(&["svm-train", "-q", "-v", "5", &heart()]).exits(0);
    assert_eq!(ran.out, "Cross Validation Accuracy = 82.963%\n");
    let ran = margrave(&["svm-train", "-v", "5", "-c", "8", "-g", "0.01", &heart()]).exits(0);
    assert!(ran.out.starts_with("Cross Validation Accuracy = 8"), "{}", ran.out);
    let ran = margrave(&["svm-train", "-s", "3", "-v", "4", &heart()]).exits(0);
    assert!(ran.out.contains("Mean squared error = 0.") && ran.out.contains("Squared correlation coefficient = 0."));
}

#[test]
fn every_type_and_kernel_can_be_exchanged() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("six.svm", six());
    let model = sandbox.path("m");
    for kind in ["0", "1", "2", "3", "4"] {
        for kernel in ["0", "1", "2", "3"] {
            let args =
                ["svm-train", "-q", "-s", kind, "-t", kernel, "-n", "0.2", "-g", "0.5", "-r", "1", &data, &model];
            let ran = margrave(&args);
            // The sigmoid kernel is not positive semi-definite: some of its problems have no optimum to prove.
            assert!(ran.code == 0 || (ran.code == 3 && kernel == "3"), "-s {kind} -t {kernel}: {}", ran.err);
            let (native, back) = (sandbox.path("native"), sandbox.path("back"));
            margrave(&["convert", &model, "--to", "native", "-o", &native]).exits(0);
            margrave(&["convert", &native, "--to", "libsvm", "-o", &back]).exits(0);
            assert_eq!(sorted(&text(&model)), sorted(&text(&back)), "-s {kind} -t {kernel}");
            let (a, b) = (sandbox.path("a"), sandbox.path("b"));
            margrave(&["svm-predict", "-q", &data, &model, &a]).exits(0);
            margrave(&["svm-predict", "-q", &data, &back, &b]).exits(0);
            assert_eq!(text(&a), text(&b), "-s {kind} -t {kernel}");
            let ran = margrave(&["predict", &model, &data, "--quiet"]).exits(0).out;
            assert_eq!(ran.lines().count(), 121);
            margrave(&["inspect", &model]).exits(0);
            let onnx = sandbox.path("onnx");
            margrave(&["convert", &native, "--to", "onnx", "-o", &onnx]).exits(0);
            assert!(std::fs::metadata(&onnx).is_ok_and(|m| m.len() > 200));
        }
    }
}

/// What does not depend on the order of labels and support vectors, which our format does not keep.
fn sorted(text: &str) -> (usize, String) {
    let head = text.lines().find(|line| line.starts_with("total_sv")).unwrap_or("").to_owned();
    (text.lines().count(), head)
}

#[test]
fn precomputed_kernels() {
    let sandbox = Sandbox::new();
    // K is 1 on the diagonal, 0.9 within a group and 0.1 across.
    let mut lines = String::new();
    for i in 0..6usize {
        lines += &format!("{} 0:{}", if i < 3 { 1 } else { -1 }, i + 1);
        for j in 0..6usize {
            let value = if i == j {
                1.0
            } else if (i < 3) == (j < 3) {
                0.9
            } else {
                0.1
            };
            lines += &format!(" {}:{value}", j + 1);
        }
        lines.push('\n');
    }
    let data = sandbox.file("k.svm", &lines);
    let (model, out) = (sandbox.path("m"), sandbox.path("out"));
    margrave(&["svm-train", "-t", "4", &data, &model]).exits(0);
    assert!(text(&model).contains("kernel_type precomputed\n") && text(&model).contains(" 0:1 \n"), "{}", text(&model));
    margrave(&["svm-predict", &data, &model, &out]).exits(0);
    assert_eq!(text(&out), "1\n1\n1\n-1\n-1\n-1\n");
    margrave(&["svm-train", "-t", "4", "-v", "3", &data]).exits(0);
    let ran = margrave(&["svm-train", "-t", "2", &data, &model]).exits(1);
    assert!(ran.err.contains("-t 4"), "{}", ran.err);
}

#[test]
fn probabilities_of_several_classes() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("six.svm", six());
    let (model, out) = (sandbox.path("m"), sandbox.path("out"));
    margrave(&["svm-train", "-q", "-b", "1", "-g", "1", &data, &model]).exits(0);
    assert!(text(&model).contains("\nprobA ") && text(&model).contains("\nprobB "));
    margrave(&["svm-predict", "-b", "1", &data, &model, &out]).exits(0);
    let table = text(&out);
    let order: Vec<&str> = table.lines().next().unwrap_or("").split(' ').skip(1).collect();
    assert_eq!(order, ["7", "4", "1", "10", "3", "-2"]);
    for line in table.lines().skip(1) {
        let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert_eq!(numbers.len(), 7, "{line}");
        assert!((numbers[1..].iter().sum::<f64>() - 1.0).abs() < 1e-4, "{line}");
        let best = (1..7).fold(1, |best, at| if numbers[at] > numbers[best] { at } else { best });
        assert_eq!(order[best - 1], line.split(' ').next().unwrap_or(""));
    }
    let ran = margrave(&["svm-predict", &data, &model, &out]).exits(0);
    assert!(ran.out.starts_with("Model supports probability estimates, but disabled in prediction.\n"));
    // Through our own commands the most probable class is always the predicted one.
    let native = sandbox.path("native");
    for way in ["ovo", "ovr"] {
        for from in ["--probability", "--probability=3"] {
            margrave(&["train", &data, "-o", &native, "--multiclass", way, from, "-C", "3"]).exits(0);
            let table = margrave(&["predict", &native, &data, "--probability", "--quiet"]).exits(0).out;
            let mut lines = table.lines();
            let header: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
            let mut rows = 0;
            for line in lines {
                let cells: Vec<&str> = line.split(',').collect();
                let p: Vec<f64> = cells[1..].iter().map(|cell| cell.parse().expect("a number")).collect();
                let best = (0..p.len()).fold(0, |best, at| if p[at] > p[best] { at } else { best });
                assert_eq!(header[best + 1], format!("probability {}", cells[0]), "{way} {from}: {line}");
                assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                rows += 1;
            }
            assert_eq!(rows, 120);
        }
    }
}

#[test]
fn intervals_of_regression() {
    let sandbox = Sandbox::new();
    let mut lines = String::new();
    for i in 0..150u32 {
        let x = f64::from(i) * 0.05;
        // Noise that is not in the function: a sine that the kernel is too wide to follow.
        lines += &format!("{:.5} 1:{x:.4}\n", x.sin() + 0.2 * (61.0 * x).sin());
    }
    let (data, model) = (sandbox.file("sine.svm", &lines), sandbox.path("m"));
    for args in [&["--probability"][..], &["--probability=5"], &["--probability", "--loss", "square"]] {
        let args = [&["train", &data, "-o", &model, "--task", "regress", "-C", "5", "--gamma", "1"][..], args].concat();
        margrave(&args).exits(0);
        let table = margrave(&["predict", &model, &data, "--probability", "--quiet"]).exits(0).out;
        assert!(table.starts_with("prediction,lower 90 %,upper 90 %\n"), "{table}");
        let truths: Vec<f64> = lines.lines().filter_map(|l| l.split(' ').next()?.parse().ok()).collect();
        let inside = table.lines().skip(1).zip(&truths).filter(|(line, y)| {
            let n: Vec<f64> = line.split(',').filter_map(|c| c.parse().ok()).collect();
            n[1] <= **y && **y <= n[2]
        });
        // On the training data the interval of left-out residuals holds at least its share, short of a few rows.
        let share = inside.count() as f64 / 150.0;
        assert!((0.85..=1.0).contains(&share), "{args:?}: {share}");
    }
    let ran = margrave(&["train", &data, "-o", &model, "--task", "novelty", "--probability"]).exits(2);
    assert!(ran.err.contains("--probability"), "{}", ran.err);
}

#[test]
fn liblinear_models_predict() {
    let sandbox = Sandbox::new();
    let model =
        sandbox.file("m", "solver_type L2R_LR\nnr_class 2\nlabel 5 3\nnr_feature 2\nbias 1\nw\n1 \n-2 \n0.5 \n");
    // Decision x₁ − 2x₂ + 0.5, positive for 5.
    let data = sandbox.file("x.svm", "5 1:1\n3 2:1\n5\n");
    let ran = margrave(&["predict", &model, &data, "--scores", "--probability", "--quiet"]).exits(0);
    let rows: Vec<&str> = ran.out.lines().collect();
    assert_eq!(rows[0], "prediction,score,probability 3,probability 5");
    assert!(rows[1].starts_with("5,1.5,0.18") && rows[2].starts_with("3,-1.5,0.8") && rows[3].starts_with("5,0.5,"));
    let back = sandbox.path("native");
    margrave(&["convert", &model, "--to", "native", "-o", &back]).exits(0);
    assert_eq!(margrave(&["predict", &back, &data, "--quiet"]).exits(0).out, "prediction\n5\n3\n5\n");
}

#[test]
fn scaling_as_svm_scale_does() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("a.svm", "1 1:2 3:5\n-1 1:4\n1 1:3 3:-5\n");
    let range = sandbox.path("range");
    let ran = margrave(&["svm-scale", "-l", "0", "-s", &range, &data]).exits(0);
    assert_eq!(ran.out, "1 3:1 \n-1 1:1 3:0.5 \n1 1:0.5 \n");
    assert_eq!(text(&range), "x\n0 1\n1 2 4\n3 -5 5\n");
    let other = sandbox.file("b.svm", "2 1:8 9:1\n");
    let ran = margrave(&["svm-scale", "-r", &range, &other]).exits(0);
    assert_eq!(ran.out, "2 1:3 3:0.5 \n");
    assert!(ran.err.contains("feature index 9"), "{}", ran.err);
}

#[test]
fn errors_are_reported_and_nothing_is_written() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m");
    for (args, named) in [
        (&["svm-train"][..], "Usage: svm-train"),
        (&["svm-train", "-z", "1", "x"], "Unknown option: -z"),
        (&["svm-train", "-v", "1", "x"], "n must >= 2"),
        (&["svm-train", "-s", "9", "x", &model], "unknown svm type"),
        (&["svm-train", "-c", "-1", "x", &model], "C <= 0"),
        (&["svm-train", "no/such/file", &model], "can't open input file"),
        (&["svm-predict", "a", "b"], "Usage: svm-predict"),
        (&["svm-predict", &heart(), &heart(), &model], "not a LIBSVM model"),
        (&["svm-scale", "-l", "2", &heart()], "inconsistent"),
        (&["svm-scale", "-r", &heart(), &heart()], "scaling parameters"),
    ] {
        let ran = margrave(args).exits(1);
        assert!(ran.err.contains(named) || ran.out.contains(named), "{args:?}: {} {}", ran.out, ran.err);
        assert!(!Path::new(&model).exists(), "{args:?}");
    }
    let native = sandbox.path("native");
    margrave(&["train", &heart(), "-o", &native, "--scale", "standard"]).exits(0);
    let ran = margrave(&["convert", &native, "--to", "libsvm", "-o", &model]).exits(2);
    assert!(ran.err.contains("scaling") && ran.err.contains("native"), "{}", ran.err);
    margrave(&["train", &heart(), "-o", &native, "--kernel", "laplacian"]).exits(0);
    let ran = margrave(&["convert", &native, "--to", "libsvm", "-o", &model]).exits(2);
    assert!(ran.err.contains("laplacian"), "{}", ran.err);
    margrave(&["convert", &native, "--to", "pickle", "-o", &model]).exits(2);
    assert!(!Path::new(&model).exists());
    let ran = margrave(&["predict", &native, &heart(), "--probability"]).exits(2);
    assert!(ran.err.contains("without probabilities"), "{}", ran.err);
}

/// A file written by LIBSVM.
fn theirs(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).display().to_string()
}

/// Words of two texts, numbers compared to what `%g` prints.
#[track_caller]
fn same_numbers(ours: &str, theirs: &str) {
    let (a, b): (Vec<&str>, Vec<&str>) = (ours.split_whitespace().collect(), theirs.split_whitespace().collect());
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(x), Ok(y)) => assert!((x - y).abs() <= 2e-6 * y.abs().max(1.0), "{a} {b}"),
            _ => assert_eq!(*a, b),
        }
    }
}

#[test]
fn models_of_libsvm_predict_as_they_do_there() {
    let sandbox = Sandbox::new();
    let (data, out) = (sandbox.file("six.svm", six()), sandbox.path("out"));
    // svm-train -b 1 -g 1, svm-predict -b 1: six classes, coupled probabilities.
    margrave(&["svm-predict", "-q", "-b", "1", &data, &theirs("six_c_svc.libsvm"), &out]).exits(0);
    same_numbers(&text(&out), &text(&theirs("six_c_svc.probabilities")));
    // svm-train -s 4 -t 1 -r 1 -d 2 -g 0.5 -n 0.4.
    margrave(&["svm-predict", "-q", &data, &theirs("six_nu_svr.libsvm"), &out]).exits(0);
    same_numbers(&text(&out), &text(&theirs("six_nu_svr.predictions")));
    // What LIBSVM trained is proven optimal, pair by pair.
    let proof =
        margrave(&["verify", &theirs("six_c_svc.libsvm"), &data, "-C", "1", "--gap", "1e-2", "--json"]).exits(0);
    assert_eq!(proof.json()["machines"].as_array().map(Vec::len), Some(15));
}
