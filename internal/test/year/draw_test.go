package year_test

import (
	"fmt"
	"math"
	"strings"
)

const (
	panelWidth, panelHeight = 340, 200
	panelGap                = 60
	legendLine              = 18
)

var colors = []string{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888", "#ee7733", "#009988", "#cc3311"}

// panels are the figures that are drawn, each over the whole span of each shape.
var panels = []struct {
	title string
	of    func(x *result, i int) float64
}{
	{"objects in the bucket", func(x *result, i int) float64 { return float64(x.Rows[i].objects()) }},
	{"bytes of the state", func(x *result, i int) float64 { return float64(x.Rows[i].State) }},
	{"bytes of a checkpoint", func(x *result, i int) float64 { return float64(x.Rows[i].Checkpoint) }},
	{"dollars a month for requests", (*result).requestDollars},
}

// draw returns a drawing of the results.
func draw(all []*result) string {
	var b strings.Builder
	width, height := 2*panelWidth+3*panelGap, 2*panelHeight+3*panelGap+legendLine*((len(all)+3)/4)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	for i, p := range panels {
		drawPanel(&b, panelGap+(i%2)*(panelWidth+panelGap), panelGap+(i/2)*(panelHeight+panelGap), p.title, all, p.of)
	}
	for i, x := range all {
		left, top := panelGap+(i%4)*180, 2*panelHeight+2*panelGap+30+(i/4)*legendLine
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="4" fill="%s"/><text x="%d" y="%d">%s, %s</text>`+"\n",
			left, top-6, colors[i%len(colors)], left+18, top, x.Shape.Name, length(x.Rows[len(x.Rows)-1].At))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawPanel draws one figure of all shapes, on a logarithmic scale whose marks are powers of ten.
func drawPanel(b *strings.Builder, left, top int, title string, all []*result, of func(*result, int) float64) {
	least, most := math.Inf(1), math.Inf(-1)
	for _, x := range all {
		for i := range x.Rows {
			y := math.Log10(of(x, i))
			least, most = min(least, y), max(most, y)
		}
	}
	least, most = math.Floor(least), math.Ceil(most)
	most = max(most, least+1)
	at := func(y float64) float64 {
		return float64(top) + panelHeight*(1-(math.Log10(y)-least)/(most-least))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", left, top-10, title)
	for mark := least; mark <= most; mark++ {
		y := at(math.Pow(10, mark))
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left, y, left+panelWidth, y, left-4, y+4, math.Pow(10, mark))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">end of the span</text>`+"\n", left+panelWidth, top+panelHeight+16)
	for i, x := range all {
		var points []string
		for j := range x.Rows {
			points = append(points, fmt.Sprintf("%.1f,%.1f", float64(left)+panelWidth*float64(j+1)/float64(len(x.Rows)), at(of(x, j))))
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colors[i%len(colors)])
	}
}
