package derive_test

import (
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// Door signs of houses with the names of their residents: the smallest program with a source, an index and a derived
// table. The function declares its inputs by reading them.
func Example() {
	e := derive.New()
	houses := derive.NewSource[derive.Name, string](e, "houses") // by person
	living := derive.NewIndex(houses, "house", func(_ derive.Name, house string) []derive.Name {
		return []derive.Name{derive.Name(house)}
	})
	signs := derive.NewTable(e, "signs", func(house derive.Name, r *derive.Reader) (string, []problem.Problem) {
		var names []string
		for _, row := range derive.List(r, living, house) {
			names = append(names, string(row.Key))
		}
		return strings.Join(names, " and "), nil
	}, derive.KeysOfIndex(living))
	signs.Watch(func(changes []derive.Change[derive.Name, string]) {
		for _, c := range changes {
			fmt.Printf("%s: %q, was %q\n", c.Key, c.New, c.Old)
		}
	})

	houses.Set("ann", "mill")
	houses.Set("ben", "mill")
	houses.Set("cat", "barn")
	houses.Loaded()
	e.Pass() // Run does this, whenever something was written

	houses.Set("ben", "barn")
	e.Pass()
	// Output:
	// barn: "cat", was ""
	// mill: "ann and ben", was ""
	// barn: "ben and cat", was "cat"
	// mill: "ann", was "ann and ben"
}

// invalidAge is declared once, with its cause and remedy.
var invalidAge = reasons.New(reasons.Row{Name: "InvalidAge", Objects: "Person",
	Cause: "The age is negative.", Remedy: "Correct it."})

// A mistake in one input becomes a Problem of that input and stops no other.
func ExampleEngine_Problems() {
	e := derive.New()
	ages := derive.NewSource[derive.Name, int](e, "ages")
	derive.NewTable(e, "adults", func(name derive.Name, r *derive.Reader) (bool, []problem.Problem) {
		age, _ := derive.Get(r, ages, name)
		if age < 0 {
			return false, []problem.Problem{{
				Object: problem.Object{Kind: "Person", Name: string(name)}, Field: "age", Reason: invalidAge,
				Message: fmt.Sprintf("%d is not an age: expected 0 or more", age),
			}}
		}
		return age >= 18, nil
	}, derive.KeysOf(ages))
	ages.Set("ann", 40)
	ages.Set("ben", -1)
	ages.Loaded()
	e.Pass()
	fmt.Println(e.Problems())
	// Output: [Person ben: age: -1 is not an age: expected 0 or more]
}
