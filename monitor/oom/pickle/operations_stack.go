package pickle

import (
	"fmt"
	"strconv"
	"strings"
)

func (l *loader) collect(kind Kind) error {
	items, err := l.popMark()
	if err != nil {
		return err
	}
	if kind == Dict && len(items)%2 != 0 {
		return errStack
	}
	l.pushItems(kind, append([]Value(nil), items...))
	return nil
}

func (l *loader) tuple(n int) error {
	items, err := l.popSeveral(n)
	if err != nil {
		return err
	}
	l.pushItems(Tuple, append([]Value(nil), items...))
	return nil
}

// add appends the top n values to the container below them.
func (l *loader) add(n int, kind Kind) error {
	items, err := l.popSeveral(n)
	if err != nil {
		return err
	}
	return l.extend(items, kind)
}

func (l *loader) addAll(kind Kind) error {
	items, err := l.popMark()
	if err != nil {
		return err
	}
	if kind == Dict && len(items)%2 != 0 {
		return errStack
	}
	return l.extend(items, kind)
}

func (l *loader) drop() error {
	if len(l.stack) == 0 {
		return errStack
	}
	l.stack = l.stack[:len(l.stack)-1] // POP may take a mark
	return nil
}

func (l *loader) duplicate() error {
	if len(l.stack) == 0 {
		return errStack
	}
	l.push(l.stack[len(l.stack)-1])
	return nil
}

func (l *loader) numbered(do func(int64) error) error {
	line, err := l.line()
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no number of an object", shorten(line))
	}
	return do(n)
}

func (l *loader) indexed(size int, do func(int64) error) error {
	n, err := l.uint(size)
	if err != nil {
		return err
	}
	return do(int64(n))
}

func (l *loader) global() error {
	module, err := l.line()
	if err != nil {
		return err
	}
	name, err := l.line()
	if err != nil {
		return err
	}
	l.pushText(Object, []byte(module+"."+name))
	return nil
}

func (l *loader) stackGlobal() error {
	names, err := l.popSeveral(2)
	if err != nil {
		return err
	}
	l.pushText(Object, []byte(l.doc.Text(names[0])+"."+l.doc.Text(names[1])))
	return nil
}

// instance reads INST: a class by name, its arguments above the mark.
func (l *loader) instance() error {
	if err := l.global(); err != nil {
		return err
	}
	class, err := l.pop()
	if err != nil {
		return err
	}
	if _, err := l.popMark(); err != nil {
		return err
	}
	l.call(class)
	return nil
}

// object reads OBJ: class and arguments above the mark.
func (l *loader) object() error {
	items, err := l.popMark()
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return errStack
	}
	l.call(items[0])
	return nil
}

// construct drops n arguments and calls the class below them.
func (l *loader) construct(n int) error {
	items, err := l.popSeveral(n + 1)
	if err != nil {
		return err
	}
	l.call(items[0])
	return nil
}
